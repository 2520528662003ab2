"""Debian 12 as a layer of the images built here, made by mmdebstrap."""

from __future__ import annotations

import platform
import tarfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from headfirst.control.images import store
from headfirst.control.images.archive import EPOCH
from headfirst.control.machine import apt, commands
from headfirst.control.machine.sudo import as_root

SUITE = "bookworm"
# The base of the images with Python packages.
_PYTHON = (
    "ca-certificates",  # the engine fetches models over TLS
    "libnuma1",  # SGLang binds its threads to NUMA nodes through it
    "libstdc++6",  # of nearly every compiled wheel
    "libsndfile1",  # SGLang imports soundfile, whose portable wheel brings no library
    "python3",
)
_MERGED = "usr-is-merged"  # instead of usrmerge, which pulls in all of Perl
_DPKG_OPTIONS = (
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/locale/*",
    "force-unsafe-io",
)
# Devices are the engine's business; lists, logs and this machine's apt settings are of no use in an image.
_LEFT_OUT = ("./dev/", "./var/cache/", "./var/log/", "./var/lib/apt/lists/", "./etc/apt/")
_HINT = "Check the network and the package sources with `apt-get update`, then repeat the command."


def layer_file(folder: Path) -> Path:
    """The tar archive of Debian with Python 3.11 in `folder`, made where it is missing. Takes 20–40 s.

    Raises NotReadyError with mmdebstrap's last lines.
    """
    return store.built(folder, "debian", store.recipe_key(), ".tar", partial(make, _PYTHON))


def make(packages: Sequence[str], target: Path, scratch: Path, left_out: Sequence[str] = ()) -> None:
    """Write a minimal Debian with these packages as a tar archive; `left_out` are patterns of their files.

    Raises NotReadyError as `layer_file`.
    """
    started = int(time.time())
    acquire = scratch / "apt.conf"
    acquire.touch(mode=0o600)  # a proxy's address may carry a password
    acquire.write_text(apt.acquire())
    archives = sources()
    argv = ["mmdebstrap", "--mode=root", "--variant=essential", f"--include={','.join((*packages, _MERGED))}"]
    argv += ["--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr"]
    argv += [f"--dpkgopt={option}" for option in _DPKG_OPTIONS]
    argv += [f"--dpkgopt=path-exclude={pattern}" for pattern in left_out]
    argv += ['--aptopt=Apt::Install-Recommends "false"', f"--aptopt={acquire}"]
    if Path("/etc/apt/auth.conf.d").is_dir():
        argv += ['--setup-hook=mkdir -p "$1/etc/apt"', "--setup-hook=copy-in /etc/apt/auth.conf.d /etc/apt"]
    argv += [SUITE, "-", *(["-"] if archives else [])]
    unpacked = scratch / "made.tar"
    doing = "Making the Debian root of the image"
    commands.run(as_root(argv), doing=doing, hint=_HINT, stdin=archives, stdout=unpacked)
    _normalize(unpacked, target, started)


def sources() -> str | None:
    """This machine's archives if it is the same Debian, else None: mmdebstrap then takes Debian's own."""
    release = platform.freedesktop_os_release()
    if (release["ID"], release.get("VERSION_CODENAME")) != ("debian", SUITE):
        return None
    return "\n".join(apt.sources()) + "\n"


def _normalize(unpacked: Path, target: Path, started: int) -> None:
    """Copies without what differs from run to run. Package files keep their time: bytecode records it."""
    with tarfile.open(unpacked) as source, tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as out:
        for info in source:
            if info.name.startswith(_LEFT_OUT):
                continue
            if info.mtime >= started:
                info.mtime = EPOCH
            info.uname = info.gname = ""
            info.pax_headers = {}
            out.addfile(info, source.extractfile(info) if info.isreg() else None)
    unpacked.unlink()
