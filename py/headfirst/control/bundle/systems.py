"""The systems of hosts that a bundle can have packages for."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from pathlib import Path

from headfirst.common.errors import InputError, NotReadyError
from headfirst.control.machine import apt
from headfirst.decide.frozen import Frozen

ARCHITECTURES = {"x86_64": "amd64"}
"""What `uname -m` prints -> Debian's name. The wheels and images of a bundle are of this architecture too."""


TEMPLATES = Path("/usr/share/python-apt/templates")
_SUITE = re.compile(r"[^-/ ]+?(|-updates|-security)")


class System(Frozen):
    """What packages and wheels depend on; `release` is as os-release has it (`12`, `24.04`)."""

    id: str
    release: str
    architecture: str = "amd64"

    def __str__(self) -> str:
        suffix = f" ({self.architecture})" if self.architecture != "amd64" else ""
        return f"{self.id}-{self.release}{suffix}"


@dataclass(frozen=True)
class Release:
    """A release of a distribution: its name in the archives, its Python, and its archives' sections."""

    codename: str
    python: str
    sections: str


_DEBIAN = "main contrib non-free non-free-firmware"
_UBUNTU = "main restricted universe multiverse"

RELEASES = {
    System(id="debian", release="12"): Release("bookworm", "3.11", _DEBIAN),
    System(id="debian", release="13"): Release("trixie", "3.13", _DEBIAN),
    System(id="ubuntu", release="22.04"): Release("jammy", "3.10", _UBUNTU),
    System(id="ubuntu", release="24.04"): Release("noble", "3.12", _UBUNTU),
}


def parse(text: str) -> System:
    """`debian-12` or `ubuntu-24.04`; InputError for a system that no bundle can be made for."""
    id, _, release = text.partition("-")
    system = System(id=id, release=release)
    if system not in RELEASES:
        raise InputError(
            f"no bundle can be made for hosts with {text}",
            where="--system",
            hint=f"Known: {', '.join(map(str, RELEASES))}.",
        )
    return system


def this_system() -> System | None:
    """The system of this machine; None where no bundle can be made for it."""
    release = platform.freedesktop_os_release()
    system = System(id=release["ID"], release=release.get("VERSION_ID", ""))
    return system if system in RELEASES else None


def archives(system: System, templates: Path = TEMPLATES) -> list[str]:
    """The distribution's archives for sources.list: this machine's own where it is the same system.

    Those of another system are what python-apt's templates of its distribution name, with its keyring.
    NotReadyError where they are not installed here.
    """
    if system == this_system():
        return apt.sources()
    release, uris = RELEASES[system], _uris(templates / f"{system.id.capitalize()}.info")
    signed = f"[signed-by=/usr/share/keyrings/{system.id}-archive-keyring.gpg]"
    return [
        f"deb {signed} {uris.get(pocket, uris[''])} {release.codename}{pocket} {release.sections}"
        for pocket in ("", "-updates", "-security")
    ]


def _uris(template: Path) -> dict[str, str]:
    """Address of the archive by pocket, as the newest release has it; "" is the release's own."""
    if not template.is_file():
        raise NotReadyError(
            "the archives of the hosts' distribution are not known on this machine",
            where=str(template),
            hint="apt-get install python-apt-common, and the keyring of that distribution.",
        )
    uris: dict[str, str] = {}
    for paragraph in template.read_text(encoding="utf-8").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line)
        uri = fields.get("BaseURI-amd64") or fields.get("BaseURI")
        if uri and (suite := _SUITE.fullmatch(fields.get("Suite", ""))):
            uris.setdefault(suite[1], uri.strip())
    return uris
