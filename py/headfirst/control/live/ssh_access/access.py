"""How to reach a host: what an inventory states about SSH, or that it is this machine, typed."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from headfirst.decide.cluster.types import Become


@dataclass(frozen=True)
class HostAccess:
    """Access to one host, over SSH or, where it is `local`, without.

    `host` is its name in the inventory. None leaves the choice to ssh's configuration and its defaults.
    `options` come before those of the other fields on ssh's command line, `more_options` after it.
    `become`: the login needs sudo for Docker and systemd.
    `obstacle` states why this host can be used by Ansible only.
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
    local: bool = False

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


# Not a word that a password or the input of a command is.
_MARK = "headfirst: input starts"
# Drops a password that sudo did not ask for, and hands the rest of stdin to the command.
_SKIP = f'while IFS= read -r line; do [ "$line" = "{_MARK}" ] && break; done; exec "$@"'


class Privileged(NamedTuple):
    """A command line for the host's shell, and what must be written to its stdin before its own input."""

    line: str
    first: bytes


def privileged(access: HostAccess, *command: str) -> Privileged:
    """The command as the user that Ansible's tasks become."""
    become = access.become
    if become is None:
        return Privileged(shlex.join(command), b"")
    sudo = [become.command, *_flags(become.flags), "-u", become.user]
    if become.password is None:
        return Privileged(shlex.join([*sudo, "-n", *command]), b"")
    words = [*sudo, "-S", "-p", "", "sh", "-c", _SKIP, "headfirst", *command]
    return Privileged(shlex.join(words), f"{become.password}\n{_MARK}\n".encode())


def _flags(text: str) -> list[str]:
    """Ansible's flags for sudo without -n and -S: whether sudo may ask is decided here."""
    kept = []
    for flag in shlex.split(text):
        if flag in ("--non-interactive", "--stdin"):
            continue
        short = flag if flag.startswith("--") else re.sub(r"[nS]", "", flag)
        if short != "-":
            kept.append(short)
    return kept
