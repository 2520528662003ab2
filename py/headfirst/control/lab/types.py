"""What a lab is: the nodes an inventory asks for on this machine, and how they are reached once up."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from headfirst.common.errors import InputError

USER, USER_ID = "headfirst", 1000
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_MEMORY = re.compile(r"[1-9][0-9]*[bkmg]?")


@dataclass(frozen=True)
class LabNode:
    """One node: its host name, its IPv4 address in the lab's subnet, and its limits (none if None).

    `memory` is in Docker's notation ("4g", "512m"); `cpus` is a number of cores, fractions allowed.
    """

    name: str
    address: str
    memory: str | None = None
    cpus: float | None = None


@dataclass(frozen=True)
class Lab:
    """Nodes on this machine with a network of their own.

    `state_dir` keeps the key and known_hosts (mode 0700); `shared_dir` appears read-only in every node.
    Raises InputError where a name cannot be a host name, or an address is doubled or outside the subnet.
    """

    name: str
    subnet: str
    nodes: tuple[LabNode, ...]
    state_dir: Path
    shared_dir: Path

    def __post_init__(self) -> None:
        try:
            network = ipaddress.IPv4Network(self.subnet)
        except ValueError as error:
            raise InputError(f"The lab's subnet {self.subnet!r} is not an IPv4 network: {error}.") from None
        for name in (self.name, *(node.name for node in self.nodes)):
            if not _NAME.fullmatch(name):
                raise InputError(f"{name!r} cannot name a lab or a node: use a-z, 0-9 and '-' only.")
        for attribute in ("name", "address"):
            values = [getattr(node, attribute) for node in self.nodes]
            if doubled := sorted({value for value in values if values.count(value) > 1}):
                raise InputError(f"Two lab nodes have the same {attribute}: {', '.join(doubled)}.")
        # The network's own address, the gateway (first host) and the broadcast address are taken.
        reserved = {network[0], network[1], network[-1]}
        for node in self.nodes:
            if node.memory and not _MEMORY.fullmatch(node.memory):
                raise InputError(f"{node.memory!r} is no amount of memory for {node.name}: write 4g or 512m.")
            if not _inside(node.address, network) or ipaddress.IPv4Address(node.address) in reserved:
                raise InputError(
                    f"The address {node.address} of lab node {node.name} is not free in {network}.",
                    hint=f"Choose one from {network[2]} to {network[-2]}.",
                )

    @property
    def gateway(self) -> str:
        """This machine's address on the lab's network."""
        return str(ipaddress.IPv4Network(self.subnet)[1])

    @property
    def network_name(self) -> str:
        """Name of the lab's Docker network."""
        return f"headfirst-{self.name}"

    def container_name(self, node: LabNode) -> str:
        """Name of the container that is this node."""
        return f"headfirst-{self.name}-{node.name}"


@dataclass(frozen=True)
class LabAccess:
    """How a node is reached: `ssh -i private_key -o UserKnownHostsFile=known_hosts user@address`."""

    user: str
    private_key: Path
    known_hosts: Path


@dataclass(frozen=True)
class NodeStatus:
    """`state` is Docker's (running, exited, …) or `absent`; `ssh`: whether sshd answers."""

    name: str
    address: str
    state: str
    ssh: bool


@dataclass
class NodeConfig:
    """A node's apt.conf or pip.conf ("": none), the files that it names, and what was left out and why."""

    conf: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


def _inside(address: str, network: ipaddress.IPv4Network) -> bool:
    try:
        return ipaddress.IPv4Address(address) in network
    except ValueError:
        return False


def is_loopback(url: str) -> bool:
    """Whether the URL, or `host:port`, is on this machine's loopback."""
    host = urlsplit(url if "://" in url else f"//{url}").hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
