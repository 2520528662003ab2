"""How to reach a host: what an inventory states about SSH, or that it is this machine, typed."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Become:
    """How commands on a host become root: sudo, as Ansible's plugin of that name would call it."""

    user: str = "root"
    command: str = "sudo"
    flags: str = ""
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class HostAccess:
    """Access to one host, over SSH or, where it is `local`, without: what Ansible's ssh plugin takes from
    variables, environment and ansible.cfg.

    `host` is its name in the inventory. None leaves the choice to ssh's configuration and its defaults.
    `options` come before those of the other fields on ssh's command line, `more_options` after it: of two
    values ssh takes the first. `become`: the login needs sudo for Docker and systemd. `obstacle` states why
    only Ansible can use this host: another connection plugin, another become method.
    """

    host: str
    address: str
    user: str | None = None
    port: int | None = None
    private_key: Path | None = None
    known_hosts: Path | None = None
    become: Become | None = None
    options: tuple[str, ...] = ()
    more_options: tuple[str, ...] = ()
    password: str | None = field(default=None, repr=False)
    obstacle: str | None = None
    local: bool = False  # the host is the machine that `deploy` runs on
    needs_sshpass: bool = False
    ssh_args: str | None = None  # Ansible's ssh_args where the user has set them

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
        return shlex.join(command if self.local else ["ssh", *self.ssh_words(), *command])
