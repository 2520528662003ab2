"""What a host says of its network: the part of module host_facts that the plan decides from."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict


class _Facts(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Nic(_Facts):
    """An interface; `kind` is physical, bond, vlan, bridge, veth ...; `addresses` are IPv4."""

    name: str
    kind: str
    addresses: tuple[str, ...]
    mtu: int
    mbit: int  # 0: the driver does not tell


class Route(_Facts):
    """How packets to a peer leave: through which interface, from which address."""

    nic: str
    source: str


class Gid(_Facts):
    """An entry of a port's GID table; `address` is the IPv4 in it, or ""."""

    index: int
    type: str  # "RoCE v2", "IB/RoCE v1"
    address: str
    nic: str


class Port(_Facts):
    """A port of an RDMA device."""

    number: int
    state: str  # ACTIVE, INIT, DOWN
    gbit: float
    link: Literal["InfiniBand", "Ethernet", ""]
    gids: tuple[Gid, ...]


class Hca(_Facts):
    """An RDMA device; `gpu_distances` has PIX, PXB, PHB, NODE or SYS for each GPU."""

    name: str
    gpu_distances: tuple[str, ...]
    ports: tuple[Port, ...]


class NetworkFacts(_Facts):
    """A host's interfaces, its ways to the peers (by address), and its RDMA devices."""

    nics: tuple[Nic, ...]
    routes: dict[str, Route]
    hcas: tuple[Hca, ...]
