"""Python packages in a folder of an image, installed by uv from a lock: exact versions, exact files."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from uv import find_uv_bin

from headfirst.control.images import commands, elf
from headfirst.control.images.layer import Member
from headfirst.control.images.pip_settings import uv_environment

# Debian 12's Python and C library; the controller's own may be others.
_TARGET = ("--python-version=3.11", "--python-platform=x86_64-manylinux_2_34")
_INSTALL = ("pip", "install", "--only-binary=:all:", "--no-deps", "--require-hashes", *_TARGET)
_HINT = "Check with `pip download` that this machine reaches its package index, then repeat the command."
# Scripts name the Python that installed them; the rest is read by compilers and by uv only.
_NEVER_READ = ("bin/*", ".lock", "*.pyi", "*.a", "*.dist-info/uv_cache.json")


Report = Callable[[int, int], None]
"""Called as packages arrive: how many are there, of how many."""


def install(lock: Path, site: Path, downloads: Path, report: Report, *extra: str) -> None:
    """Installs the packages of the lock file into the folder `site`.

    `downloads` keeps wheels for the next try; on the same filesystem as `site` nothing is copied.
    Raises NotReadyError with uv's last lines.
    """
    wanted = sum("==" in line for line in lock.read_text().splitlines())

    def watch() -> None:
        # A folder of uv's cache for each package that is downloaded and unpacked.
        report(min(wanted, len(list(downloads.glob("archive-*/*/*.dist-info")))), wanted)

    argv = [find_uv_bin(), *_INSTALL, *extra, "--link-mode=hardlink", f"--cache-dir={downloads}"]
    commands.run(
        [*argv, f"--target={site}", "-r", str(lock)],
        doing=f"Installing the packages of {lock.name}",
        hint=_HINT,
        env=uv_environment(),
        watch=watch,
    )


def add(files: Path, site: Path) -> None:
    """Copy a folder of files over `site`."""
    for source in sorted(files.rglob("*")):
        if source.is_file() and source.suffix != ".pyc":
            target = site / source.relative_to(files)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)  # a hard link into the downloads must not be written through
            shutil.copyfile(source, target)
            target.chmod(0o755 if source.read_bytes().startswith(b"#!") else 0o644)  # a wheel keeps no modes


def members(site: Path, prefix: str, left_out: Sequence[str] = ()) -> Iterator[Member]:
    """The files of `site` for a layer, below `prefix`, without those that match `left_out` (fnmatch)."""
    skip = re.compile("|".join(fnmatch.translate(pattern) for pattern in (*_NEVER_READ, *left_out)))
    for folder, _, names in os.walk(site):
        for name in names:
            path = Path(folder, name)
            relative = str(path.relative_to(site))
            if not skip.match(relative):
                yield _member(path, relative, f"{prefix}/{relative}")


def _member(path: Path, relative: str, name: str) -> Member:
    status = path.stat()
    if relative.endswith(".dist-info/RECORD"):
        kept = [line for line in path.read_bytes().splitlines(keepends=True) if not line.startswith(b"bin/")]
        return Member(name, sum(map(len, kept)), head=b"".join(kept))
    executable = bool(status.st_mode & 0o100)
    if ".so" in path.suffixes and (short := elf.stripped(path, status.st_size)):
        head, size = short
        return Member(name, size, executable, head, source=path)
    return Member(name, status.st_size, executable, source=path)
