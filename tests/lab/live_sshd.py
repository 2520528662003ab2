"""A throw-away sshd on this machine's loopback addresses, with keys and known hosts of its own."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from headfirst.decide.cluster.login import HostAccess

_CONFIG = """\
Port {port}
ListenAddress 0.0.0.0
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
SetEnv PATH={folder}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
"""


@dataclass(frozen=True)
class Sshd:
    """The running server; `folder/bin` comes first on the PATH of its sessions."""

    folder: Path
    port: int

    def access(self, host: str = "node1", address: str = "127.0.0.1", **changes: object) -> HostAccess:
        """A login that works, but for `changes`."""
        known = {"private_key": self.folder / "key", "known_hosts": self.folder / "known_hosts"}
        return HostAccess(host, address, **{"user": "root", "port": self.port, **known, **changes})  # type: ignore[arg-type]

    def program(self, name: str, text: str) -> None:
        """Put a program in the way of the sessions' own."""
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)


@pytest.fixture
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    program = shutil.which("sshd", path="/usr/sbin:/usr/bin")
    assert program, "sshd is missing: apt-get install openssh-server"
    Path("/run/sshd").mkdir(exist_ok=True)
    folder = tmp_path_factory.mktemp("sshd")
    (folder / "bin").mkdir()
    for name in ("host_key", "key", "wrong_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    public = (folder / "host_key.pub").read_text().split()[:2]
    other = (folder / "wrong_key.pub").read_text().split()[:2]
    names = ",".join(f"[127.0.0.{number}]:{port}" for number in range(1, 10))
    (folder / "known_hosts").write_text(f"{names} {' '.join(public)}\n")
    (folder / "changed_hosts").write_text(f"{names} {' '.join(other)}\n")
    (folder / "no_hosts").write_text("")
    (folder / "config").write_text(_CONFIG.format(port=port, folder=folder))
    with subprocess.Popen([program, "-D", "-f", str(folder / "config"), "-E", str(folder / "log")]) as server:
        try:
            _wait_for(port, server)
            yield Sshd(folder, port)
        finally:
            server.terminate()


def _wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and server.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(f"sshd did not start: {server.poll()}")
