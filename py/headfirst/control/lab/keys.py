"""The lab's key, and the known_hosts that make SSH check the nodes instead of trusting them."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from headfirst.common.errors import NotReadyError
from headfirst.common.state_files import replace_file
from headfirst.control.lab import nodes
from headfirst.control.lab.types import USER, Lab, LabAccess

if TYPE_CHECKING:
    from docker.models.containers import Container

_HOST_KEY = "/etc/ssh/ssh_host_ed25519_key.pub"


def access(lab: Lab) -> LabAccess:
    """Where the lab's key and known_hosts are, whether or not they exist yet."""
    return LabAccess(USER, lab.state_dir / "id_ed25519", lab.state_dir / "known_hosts")


def ensure_key(lab: Lab) -> str:
    """The lab's public key; a fresh pair is made where there is none."""
    lab.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    lab.state_dir.chmod(0o700)
    private = access(lab).private_key
    if not private.exists():
        comment = f"headfirst-lab-{lab.name}"
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", private], check=True
        )
    return private.with_suffix(".pub").read_text()


def host_key(container: Container) -> str:
    """A node's public host key, read through Docker: without a network."""
    text = nodes.file_of(container, _HOST_KEY).decode()
    if not text:
        raise NotReadyError(f"{_HOST_KEY} is not a file.", where=nodes.name_of(container))
    kind, key, *_ = text.split()
    return f"{kind} {key}"


def write_known_hosts(lab: Lab, host_keys: dict[str, str]) -> None:
    """Writes known_hosts of the addresses given; the file is replaced whole."""
    lines = [f"{address} {key}\n" for address, key in sorted(host_keys.items())]
    replace_file(access(lab).known_hosts, "".join(lines))
