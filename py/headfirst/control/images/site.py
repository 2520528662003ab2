"""Python packages in a folder of an image, installed by uv from a lock: exact versions, exact files.

Shared libraries lose their debugging symbols: triton's is 506 MB as it comes, 192 without. That needs no
binutils: in a linked library all that is loaded is within the program headers' segments, and what follows
the last of them (symbol and section tables, DWARF) is read by debuggers only.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from headfirst.control.images.archive import LayerFile
from headfirst.control.machine import commands

_ELF64_LITTLE = b"\x7fELF\x02\x01"
_HEADER_BYTES = 64
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
_MIN_GAIN_BYTES = 1 << 20


def stripped(path: Path, size: int) -> tuple[bytes, int] | None:
    """New ELF header and new size in bytes of the library at `path`; None if it is none or gains little."""
    if size < _MIN_GAIN_BYTES:
        return None
    with path.open("rb") as file:
        header = bytearray(file.read(_HEADER_BYTES))
        if not header.startswith(_ELF64_LITTLE):
            return None
        (table,) = struct.unpack_from("<Q", header, 32)
        entry_bytes, entries = struct.unpack_from("<HH", header, 54)
        file.seek(table)
        end = table + entry_bytes * entries
        for _ in range(entries):
            _, _, offset, _, _, in_file, _, _ = _PROGRAM_HEADER.unpack(file.read(entry_bytes))
            end = max(end, offset + in_file)
    if size - end < _MIN_GAIN_BYTES:
        return None
    struct.pack_into("<Q", header, 40, 0)  # e_shoff: no section table
    struct.pack_into("<HHH", header, 58, 0, 0, 0)  # e_shentsize, e_shnum, e_shstrndx
    return bytes(header), end


# Debian 12's Python and C library; the controller's own may be others.
_TARGET = ("--python-version=3.11", "--python-platform=x86_64-manylinux_2_34")
_INSTALL = ("pip", "install", "--only-binary=:all:", "--no-deps", "--require-hashes", *_TARGET)
# Scripts name the Python that installed them; the rest is read by compilers and by uv only.
_NEVER_READ = ("bin/*", ".lock", "*.pyi", "*.a", "*.dist-info/uv_cache.json")


Report = Callable[[int, int], None]
"""Called as packages arrive: how many are there, of how many."""


def install(lock: Path, site: Path, downloads: Path, report: Report, *extra: str) -> None:
    """Installs the packages of the lock file into the folder `site`.

    `downloads` keeps wheels for the next try; on the same filesystem as `site` nothing is copied.
    Raises NotReadyError with uv's last lines.
    """
    total = sum("==" in line for line in lock.read_text().splitlines())

    def watch() -> None:
        # A folder of uv's cache for each package that is downloaded and unpacked.
        report(min(total, len(list(downloads.glob("archive-*/*/*.dist-info")))), total)

    folders = ["--link-mode=hardlink", f"--cache-dir={downloads}", f"--target={site}"]
    doing = f"Installing the packages of {lock.name}"
    commands.uv(*_INSTALL, *extra, *folders, "-r", str(lock), doing=doing, watch=watch)


def add(files: Path, site: Path) -> None:
    """Copy a folder of files over `site`."""
    for source in sorted(files.rglob("*")):
        if source.is_file() and source.suffix != ".pyc":
            target = site / source.relative_to(files)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)  # a hard link into the downloads must not be written through
            shutil.copyfile(source, target)
            target.chmod(0o755 if source.read_bytes().startswith(b"#!") else 0o644)  # a wheel keeps no modes


def members(site: Path, prefix: str, left_out: Sequence[str] = ()) -> Iterator[LayerFile]:
    """The files of `site` for a layer, below `prefix`, without those that match `left_out` (fnmatch)."""
    skip = re.compile("|".join(fnmatch.translate(pattern) for pattern in (*_NEVER_READ, *left_out)))
    for folder, _, names in os.walk(site):
        for name in names:
            path = Path(folder, name)
            relative = str(path.relative_to(site))
            if not skip.match(relative):
                yield _member(path, relative, f"{prefix}/{relative}")


def _member(path: Path, relative: str, name: str) -> LayerFile:
    status = path.stat()
    if relative.endswith(".dist-info/RECORD"):
        recorded_lines = [
            line for line in path.read_bytes().splitlines(keepends=True) if not line.startswith(b"bin/")
        ]
        return LayerFile(name, sum(map(len, recorded_lines)), head=b"".join(recorded_lines))
    executable = bool(status.st_mode & 0o100)
    if ".so" in path.suffixes and (short := stripped(path, status.st_size)):
        head, size = short
        return LayerFile(name, size, executable, head, source=path)
    return LayerFile(name, status.st_size, executable, source=path)
