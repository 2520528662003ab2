"""How to reach a host: what an inventory states about SSH, typed."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class HostAccess:
    """SSH access to one host.

    `host` is its name in the inventory. None leaves the choice to ssh's configuration and its defaults.
    `options` come before those of the other fields on ssh's command line, `more_options` after it.
    `become`:  the login is not `become_user` and needs sudo for Docker and systemd.
    `obstacle` states why this host can be used by Ansible only.
    """

    host: str
    address: str
    user: str | None = None
    port: int | None = None
    private_key: Path | None = None
    known_hosts: Path | None = None
    become: bool = False
    become_user: str = "root"
    become_command: str = "sudo"
    become_flags: str = ""
    options: tuple[str, ...] = ()
    more_options: tuple[str, ...] = ()
    password: str | None = field(default=None, repr=False)
    become_password: str | None = field(default=None, repr=False)
    obstacle: str | None = None

    def ssh_words(self) -> list[str]:
        """The words of ssh's command line after `ssh` that make this login: options and destination."""
        words = [*self.options]
        if self.private_key:
            words += ["-i", str(self.private_key)]
        if self.port:
            words += ["-p", str(self.port)]
        if self.known_hosts:
            words += ["-o", f"UserKnownHostsFile={self.known_hosts}"]
        words += self.more_options
        return [*words, f"{self.user}@{self.address}" if self.user else self.address]

    def ssh_command(self, *command: str) -> str:
        """What to type to run `command` there; ssh and sudo ask for passwords then."""
        return shlex.join(["ssh", *self.ssh_words(), *command])
