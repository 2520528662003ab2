"""How to reach a host: what an inventory says about SSH, typed."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class HostAccess:
    """SSH access to one host.

    `host` is its name in the inventory. None leaves the choice to ~/.ssh/config and ssh's defaults.
    `become` says that the login is not root and needs sudo for Docker and systemd.
    """

    host: str
    address: str
    user: str | None = None
    port: int | None = None
    private_key: Path | None = None
    known_hosts: Path | None = None
    become: bool = False

    def ssh_command(self, *command: str) -> str:
        """What to type to run `command` there, with everything that makes this login special."""
        words = ["ssh"]
        if self.private_key:
            words += ["-i", str(self.private_key)]
        if self.port:
            words += ["-p", str(self.port)]
        if self.known_hosts:
            words += ["-o", f"UserKnownHostsFile={self.known_hosts}"]
        words.append(f"{self.user}@{self.address}" if self.user else self.address)
        return shlex.join([*words, *command])
