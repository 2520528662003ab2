"""A lab of fresh, bare nodes for a test module, reached as servers of somebody else's would be."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headfirst.control.lab import lifecycle, types
from headfirst.control.paths import state_dir

LOGIN = """\
ansible_user={access.user}
ansible_ssh_private_key_file={access.private_key}
ansible_ssh_common_args=-o UserKnownHostsFile={access.known_hosts} -o IdentitiesOnly=yes
"""


@dataclass(frozen=True)
class BareNodes:
    """Nodes that are up, and the `[all:vars]` lines that reach them."""

    described: types.Lab
    access: types.LabAccess

    @property
    def addresses(self) -> list[str]:
        return [node.address for node in self.described.nodes]

    @property
    def login(self) -> str:
        return LOGIN.format(access=self.access)

    def container(self, number: int) -> str:
        """Of the node with this number, from 1."""
        return self.described.container_name(self.described.nodes[number - 1])

    def run(self, number: int, command: str) -> subprocess.CompletedProcess[str]:
        """Run a line of bash as root on a node."""
        argv = ["docker", "exec", self.container(number), "bash", "-c", command]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    def two_hosts(self, folder: Path, more: str = "", head: str = "", worker: str = "") -> Path:
        """An inventory of the first two nodes without GPUs; `head` and `worker` end their lines."""
        path = folder / "mine.ini"
        path.write_text(
            f"[head]\nnode1 ansible_host={self.addresses[0]} {head}\n\n"
            f"[workers]\nnode2 ansible_host={self.addresses[1]} {worker}\n\n"
            "[all:vars]\nengine_device=cpu\nmodel_source=huggingface\nmodel=Qwen/Qwen3-0.6B\n"
            f"{self.login}\n{more}\n"
        )
        return path


@contextmanager
def bare_nodes(name: str, network: str, count: int, folder: Path) -> Iterator[BareNodes]:
    """`count` nodes in `network` (three octets), removed at the end."""
    shared = folder / "shared"
    shared.mkdir()
    described = types.Lab(
        name=name,
        subnet=f"{network}.0/24",
        nodes=tuple(types.LabNode(f"node{i}", f"{network}.{10 + i}") for i in range(1, count + 1)),
        state_dir=state_dir("lab", name),
        shared_dir=shared,
    )
    try:
        yield BareNodes(described, lifecycle.up(described, lambda what, done, total: None))
    finally:
        lifecycle.down(described)
