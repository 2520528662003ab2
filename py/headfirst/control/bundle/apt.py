"""Collects packages with apt itself: what a host needs that has nothing, with their index.

apt runs as this user in folders of its own, with the archives of the hosts' system and an empty list of
installed packages; the machine's own state of packages does not count and is not touched.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.headfirst.serving.plugins.module_utils import deb_index

from headfirst.common.errors import NotReadyError
from headfirst.control.bundle.items import Item
from headfirst.control.bundle.systems import System, archives
from headfirst.control.machine import apt
from headfirst.control.machine.packages import Advance

INDEX = "Packages"
_URI = re.compile(r"'[^']+' (\S+) \d+")
# Of a version in the name of a file, as apt writes it; an archive leaves it out.
_EPOCH = re.compile(r"_\d+%3a")
_HINT = "Check the network and the package sources with `apt-get update`, then repeat the command."


@dataclass(frozen=True)
class Repository:
    """An archive besides the distribution's: a line of sources.list, and the key that signs it."""

    uri: str
    suite: str  # of a flat repository with a slash at its end
    components: str
    key: bytes

    def line(self, keyring: Path) -> str:
        return f"deb [signed-by={keyring}] {self.uri} {self.suite} {self.components}".rstrip()


class Apt:
    """apt for hosts of one system, in `folder`; what was downloaded stays there for the next time."""

    def __init__(self, folder: Path, system: System, repositories: Sequence[Repository]) -> None:
        if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
            raise NotReadyError(
                "there is no apt-get on this machine, which collects the hosts' packages",
                hint="Make the bundle on Debian or Ubuntu, or in a container of one of them.",
            )
        self._folder, self._system = folder, system
        self._conf = folder / "apt.conf"
        for name in ("state/lists/partial", "cache/archives/partial", "empty/partial"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "state/status").touch()
        lines = archives(system)
        for number, repository in enumerate(repositories):
            keyring = folder / f"key-{number}.asc"
            keyring.write_bytes(repository.key)
            lines.append(repository.line(keyring))
        (folder / "sources.list").write_text("\n".join(lines) + "\n")
        (folder / "preferences").write_text("")
        self._conf.touch(mode=0o600)  # a proxy's address may carry a password
        self._conf.write_text(apt.acquire() + self._settings())

    def update(self, advance: Advance) -> None:
        """Fetch the lists. NotReadyError with apt's last lines."""
        advance(f"reading the archives of {self._system}", 0, 0)
        self._run("apt-get", "--error-on=any", "update")

    def prefer(self, preferences: str) -> None:
        """More of apt's preferences, as in /etc/apt/preferences: a group of packages has one version."""
        with (self._folder / "preferences").open("a") as file:
            file.write(preferences)

    def madison(self, names: Sequence[str]) -> str:
        """What `apt-cache madison` prints of the packages."""
        return self._run("apt-cache", "madison", *names)

    def collect(self, groups: Sequence[Sequence[str]], advance: Advance) -> dict[str, Item]:
        """The packages of all groups with what they depend on, and their index, by file name.

        A group is what one call of apt installs; groups need not fit one another.
        """
        names = {name for group in groups for name in self._file_names(group)}
        for group in groups:
            self._count(names, advance)
            self._run("apt-get", "--yes", "--download-only", "install", *group)
        self._count(names, advance)
        files = {_EPOCH.sub("_", name): self._file(name) for name in sorted(names)}
        index = self._folder / INDEX
        index.write_text("\n".join(deb_index.stanza(str(path), name) for name, path in files.items()))
        for path in (self._folder / "cache/archives").glob("*.deb"):
            if path.name not in names:  # of an earlier bundle
                path.unlink()
        return {name: Item.of(path) for name, path in {**files, INDEX: index}.items()}

    def _file_names(self, group: Sequence[str]) -> list[str]:
        """File names, as if nothing was downloaded yet."""
        nothing = f"Dir::Cache::archives={self._folder / 'empty'}"
        printed = self._run("apt-get", "-o", nothing, "--yes", "--print-uris", "install", *group)
        return [match[1] for line in printed.splitlines() if (match := _URI.match(line))]

    def _count(self, names: Collection[str], advance: Advance) -> None:
        done = sum(self._file(name).exists() for name in names)
        advance(f"downloading packages of {self._system}", done, len(names))

    def _file(self, name: str) -> Path:
        return self._folder / "cache/archives" / name

    def _settings(self) -> str:
        folder = self._folder
        settings = {
            "Dir::Etc::main": "/dev/null",
            "Dir::Etc::parts": "/dev/null",
            "Dir::Etc::preferences": folder / "preferences",
            "Dir::Etc::preferencesparts": "/dev/null",
            "Dir::Etc::sourcelist": folder / "sources.list",
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::State": folder / "state",
            "Dir::State::status": folder / "state/status",
            "Dir::Cache": folder / "cache",
            "Dir::Log": folder / "state",
            "APT::Architecture": self._system.architecture,
            "APT::Install-Recommends": "false",
            "Acquire::Languages": "none",
            "APT::Sandbox::User": "root",  # apt would give the folders to another user
        }
        lines = [f'{name} "{value}";' for name, value in settings.items()]
        return "\n".join([*lines, f'APT::Architectures {{ "{self._system.architecture}"; }};', ""])

    def _run(self, *argv: str) -> str:
        environment = {**os.environ, "APT_CONFIG": str(self._conf), "LC_ALL": "C.UTF-8"}
        done = subprocess.run(
            [argv[0], "-q", *argv[1:]], capture_output=True, text=True, env=environment, check=False
        )
        if done.returncode != 0:
            last = "\n".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-8:])
            raise NotReadyError(
                f"packages of {self._system} cannot be collected: `{' '.join(argv)}` failed:\n{last}",
                hint=_HINT,
            )
        return done.stdout
