"""Debian packages that this machine needs for lab nodes and for images built here, installed in one step."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from headfirst.common.errors import NotReadyError
from headfirst.control.machine.sudo import as_root


class Advance(Protocol):
    """Called as work advances: what is being done, how much of it, out of how much (0: unknown)."""

    def __call__(self, what: str, done: int, total: int) -> None: ...


@dataclass(frozen=True)
class Package:
    """A package of Debian and Ubuntu alike, and what shows that it, or another one like it, is installed."""

    name: str
    commands: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    is_needed: Callable[[], bool] = lambda: True

    def is_missing(self) -> bool:
        """Whether it has to be installed."""
        path = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
        has_commands = all(shutil.which(command, path=path) for command in self.commands)
        return self.is_needed() and not (has_commands and all(Path(file).exists() for file in self.files))


def _has_apparmor() -> bool:
    enabled = Path("/sys/module/apparmor/parameters/enabled")
    return enabled.exists() and enabled.read_text().startswith("Y")


_MMDEBSTRAP = Package("mmdebstrap", commands=("mmdebstrap",))
FOR_LAB = (
    Package("docker.io", commands=("dockerd",)),  # the engine may come from elsewhere
    _MMDEBSTRAP,
    Package("openssh-client", commands=("ssh", "ssh-keygen")),
    # Docker cannot start a container on a kernel with AppArmor without the parser of its profiles.
    Package("apparmor", commands=("apparmor_parser",), is_needed=_has_apparmor),
)
FOR_IMAGES = (
    _MMDEBSTRAP,
    # Images are made of Debian, also where this machine is not Debian.
    Package("debian-archive-keyring", files=("/usr/share/keyrings/debian-archive-keyring.gpg",)),
)


def missing(packages: Iterable[Package]) -> list[str]:
    """Names of the packages to install, each once."""
    return sorted({package.name for package in packages if package.is_missing()})


def install(names: list[str], progress: Advance) -> None:
    """Installs the packages; does nothing when `names` is empty.

    Raises NotReadyError that names all of them where this is not Debian or Ubuntu, root is out of reach, or
    apt-get fails.
    """
    if not names:
        return
    what = f"installing {', '.join(names)} (usually 30–90 s)"
    by_hand = (
        f"Install {'it' if len(names) == 1 else 'them'} yourself: `apt-get install {' '.join(names)}` as root"
    )
    progress(what, 0, 100)
    try:
        apt_get("update")
        apt_get(
            "install", "--yes", "--no-install-recommends", *names, done=lambda done: progress(what, done, 100)
        )
    except NotReadyError as error:
        raise NotReadyError(
            f"This machine lacks {', '.join(names)}, and installation failed: {error.what}",
            hint=f"{by_hand}, then repeat the command. {error.hint or ''}".strip(),
        ) from None
    progress(what, 100, 100)


def apt_get(*arguments: str, done: Callable[[int], None] = lambda done: None) -> None:
    """Runs apt-get as root; `done` is called with percentages. Raises NotReadyError with its last lines."""
    if shutil.which("apt-get") is None:
        raise NotReadyError(
            "There is no apt-get.", hint="Supported systems are Debian 12 and Ubuntu 22.04 and 24.04."
        )
    # sudo closes all other descriptors: the status lines come among the output's.
    argv = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-o", "APT::Status-Fd=1"]
    # A machine that has just booted may be at its own updates.
    argv += ["-o", "DPkg::Lock::Timeout=300", *arguments]
    lines: list[str] = []
    with subprocess.Popen(
        as_root(argv), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for line in process.stdout or ():
            if (percentage := _percentage(line)) is not None:
                done(percentage)
            else:
                lines.append(line.rstrip())
    if process.returncode != 0:
        tail = "\n".join(line for line in lines[-8:] if line)
        raise NotReadyError(
            f"`apt-get {' '.join(arguments)}` failed on this machine:\n{tail}",
            hint="Check the network and the package sources with `apt-get update`.",
        )


def _percentage(line: str) -> int | None:
    """Of a line of APT::Status-Fd: downloads are the first half of the work, unpacking is the second."""
    kind, *fields = line.split(":")
    if kind not in ("dlstatus", "pmstatus") or len(fields) < 2:
        return None
    try:
        return round(float(fields[1]) / 2) + (50 if kind == "pmstatus" else 0)
    except ValueError:
        return None
