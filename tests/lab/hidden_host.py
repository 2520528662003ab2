"""A host behind another: network namespaces with sshd, a user with a password, and sudo that asks for it.

This machine reaches `JUMP` only; from there a link leads to `HOST`. Needs root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE, JUMP, INNER, HOST = "10.98.1.1", "10.98.1.2", "10.98.2.1", "10.98.2.2"
USER, PASSWORD = "hf-user", "{{ not a }} template's 'pa$$' word"
# The user and sudo's rules exist in the mount namespace of the sshd only.
_SSHD = """\
set -e
for name in passwd shadow group sudoers; do mount --bind {folder}/$name /etc/$name; done
mkdir -p /run/sshd
exec $(PATH=/usr/sbin:$PATH command -v sshd) -D -f {folder}/{name}.conf -E {folder}/{name}.log
"""
_CONFIG = """\
Port 22
ListenAddress {address}
HostKey {folder}/{name}_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication yes
KbdInteractiveAuthentication no
PubkeyAuthentication {keys}
SetEnv PATH={folder}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
"""
# An engine without containers, for root only.
_DOCKER = """\
#!{python}
import os, sys
if os.geteuid() != 0:
    sys.exit("permission denied while trying to connect to the Docker daemon socket")
if sys.argv[1] == "version":
    print("1.43")
    sys.exit()
if sys.argv[1:] != ["system", "dial-stdio"]:
    sys.exit(f"no such command: {{sys.argv}}")
while line := sys.stdin.buffer.readline():
    while sys.stdin.buffer.readline().strip():
        pass
    if not line.startswith(b"GET /"):
        sys.exit(f"not a request: {{line}}")
    body = b'{{"message": "No such container: x"}}'
    head = b"HTTP/1.1 404 Not Found\\r\\nContent-Type: application/json\\r\\nContent-Length: %d\\r\\n\\r\\n"
    sys.stdout.buffer.write(head % len(body) + body)
    sys.stdout.buffer.flush()
"""


@dataclass(frozen=True)
class HiddenHost:
    """Files of both sshds; `config` is a configuration for ssh that knows their keys."""

    folder: Path

    @property
    def config(self) -> Path:
        return self.folder / "ssh_config"

    def inventory(self, path: Path, *words: str) -> Path:
        """An inventory of the host, with these variables."""
        path.write_text(
            f"[head]\nhidden ansible_host={HOST} ansible_user={USER} {' '.join(words)}\n"
            "[all:vars]\nmodel_source=demo\nengine_device=cpu\nengine_image_source=build\n"
        )
        return path

    def accepted(self, name: str) -> int:
        """Logins that the sshd `jump` or `host` has accepted."""
        return (self.folder / f"{name}.log").read_text().count("Accepted ")


@pytest.fixture(scope="module")
def hidden() -> Iterator[HiddenHost]:
    # Not pytest's folder, which only root may enter: sshd reads the user's keys as that user.
    folder = Path(tempfile.mkdtemp(prefix="hf-hidden-"))
    folder.chmod(0o755)
    _files(folder)
    names = {name: f"hf{os.getpid()}-{name}" for name in ("jump", "host")}
    servers = []
    try:
        _links(names)
        for name in names:
            script = _SSHD.format(folder=folder, name=name)
            command = ["ip", "netns", "exec", names[name], "unshare", "-m", "sh", "-c", script]
            servers.append(subprocess.Popen(command))
        for name, address in (("jump", JUMP), ("host", HOST)):
            _wait_for(names["jump"], address, folder / f"{name}.log")
        yield HiddenHost(folder)
    finally:
        for server in servers:
            server.terminate()
            server.wait()
        for namespace in names.values():
            subprocess.run(["ip", "netns", "delete", namespace], check=False)
        shutil.rmtree(folder)


def _files(folder: Path) -> None:
    for name in ("jump_key", "host_key", "user_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    known = [
        f"{address} {' '.join((folder / f'{name}_key.pub').read_text().split()[:2])}"
        for name, address in (("jump", JUMP), ("host", HOST))
    ]
    (folder / "known_hosts").write_text("\n".join(known) + "\n")
    (folder / "jump.conf").write_text(_CONFIG.format(folder=folder, name="jump", address=JUMP, keys="yes"))
    (folder / "host.conf").write_text(_CONFIG.format(folder=folder, name="host", address=HOST, keys="no"))
    (folder / "ssh_config").write_text(
        f"Host jump\n  HostName {JUMP}\n  User {USER}\n  IdentityFile {folder}/user_key\n"
        f"Host asking\n  HostName {JUMP}\n  User {USER}\n  PubkeyAuthentication no\n"
        f"Host *\n  UserKnownHostsFile {folder}/known_hosts\n  StrictHostKeyChecking yes\n"
    )
    done = subprocess.run(
        ["openssl", "passwd", "-6", "-stdin"], input=PASSWORD, capture_output=True, text=True, check=True
    )
    lines = {
        "passwd": f"{USER}:x:61234:61234::{folder}/home:/bin/sh",
        "group": f"{USER}:x:61234:",
        "shadow": f"{USER}:{done.stdout.strip()}:19000:0:99999:7:::",
    }
    for name, line in lines.items():
        (folder / name).write_text(Path(f"/etc/{name}").read_text() + line + "\n")
    (folder / "sudoers").write_text(
        f'Defaults secure_path="{folder}/bin:/usr/sbin:/usr/bin:/sbin:/bin"\n{USER} ALL=(ALL) ALL\n'
    )
    (folder / "sudoers").chmod(0o440)
    (folder / "home").mkdir()
    os.chown(folder / "home", 61234, 61234)
    (folder / "bin").mkdir()
    (folder / "bin" / "docker").write_text(_DOCKER.format(python="/usr/bin/python3"))
    (folder / "bin" / "docker").chmod(0o755)


def _links(names: dict[str, str]) -> None:
    jump, host = names["jump"], names["host"]
    short = os.getpid()
    for namespace in names.values():
        _ip("netns", "add", namespace)
    _ip("link", "add", f"hfj{short}", "type", "veth", "peer", "eth0", "netns", jump)
    _ip("-n", jump, "link", "add", "eth1", "type", "veth", "peer", "eth0", "netns", host)
    _ip("address", "add", f"{HERE}/24", "dev", f"hfj{short}")
    _ip("link", "set", f"hfj{short}", "up")
    for namespace, device, address in ((jump, "eth0", JUMP), (jump, "eth1", INNER), (host, "eth0", HOST)):
        _ip("-n", namespace, "link", "set", "lo", "up")
        _ip("-n", namespace, "address", "add", f"{address}/24", "dev", device)
        _ip("-n", namespace, "link", "set", device, "up")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def _wait_for(namespace: str, address: str, log: Path) -> None:
    """Until an sshd answers at the address, as seen from the jump host."""
    probe = f"exec 3<>/dev/tcp/{address}/22"
    for _ in range(200):
        done = subprocess.run(
            ["ip", "netns", "exec", namespace, "bash", "-c", probe], stderr=subprocess.DEVNULL, check=False
        )
        if done.returncode == 0:
            return
        time.sleep(0.05)
    raise AssertionError(f"no sshd at {address}: {log.read_text() if log.exists() else 'no log'}")
