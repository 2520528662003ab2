"""A lab of fresh, bare nodes for a test module, reached as servers of somebody else's would be."""

from __future__ import annotations

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
        yield BareNodes(described, lifecycle.up(described, lambda what, done, total: None, print))
    finally:
        lifecycle.down(described)
