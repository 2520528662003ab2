"""What a host reports of itself: the part of module host_facts that the plan decides from.

Everything here comes from a node. A value is an UntrustedError unless its type, characters and size are those
that a kernel, a driver or iproute2 can report.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from ipaddress import IPv4Address
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from headfirst.common.untrusted import (
    UntrustedError,
    device_name,
    integer,
    line,
    product_name,
    shown,
)
from headfirst.decide.frozen import Tolerant
from headfirst.decide.hardware import gpus
from headfirst.decide.untrusted_model import validated

_MAX_NIC_NAME = 15  # IFNAMSIZ without its NUL


def _or_empty(check: Callable[..., str], **options: Any) -> BeforeValidator:
    """A check that accepts "": the host has no such value."""
    return BeforeValidator(lambda value: value if value == "" else check(value, **options))


def _address(value: Any, *, what: str) -> str:
    text = line(value, what=what, limit=15)
    try:
        return str(IPv4Address(text))
    except ValueError:
        raise UntrustedError(f"{what} is not an IPv4 address: {shown(text)}") from None


def _bounded(what: str, high: int) -> BeforeValidator:
    return BeforeValidator(partial(integer, what=what, high=high))


_nic = partial(device_name, what="the name of an interface", limit=_MAX_NIC_NAME)
_address_of_nic = partial(_address, what="an address")
Name = Annotated[str, BeforeValidator(partial(device_name, what="the name of an RDMA device"))]
NicName = Annotated[str, BeforeValidator(_nic)]
MaybeNicName = Annotated[str, _or_empty(_nic)]
Address = Annotated[str, BeforeValidator(_address_of_nic)]
MaybeAddress = Annotated[str, _or_empty(_address_of_nic)]
Word = Annotated[str, _or_empty(device_name, what="a kind or state", limit=32)]
Gbit = Annotated[float, Field(strict=True, ge=0, le=1e6, allow_inf_nan=False)]
Count = Annotated[int, _bounded("a number", 2**32 - 1)]
Bytes = Annotated[int, _bounded("a number of bytes", 2**56)]
Digest = Annotated[str, Field(strict=True, pattern=r"^([0-9a-f]{32})?$")]
CgroupObstacle = Literal["", "cgroup-v1", "nested", "cgroup-driver", "nftables", "no-rules"]
Capability = Annotated[str, Field(strict=True, pattern=r"^([1-9][0-9]?\.[0-9])?$")]


class Nic(Tolerant):
    """An interface; `kind` is physical, bond, vlan, bridge, veth ...; `addresses` are IPv4."""

    name: NicName
    kind: Word
    addresses: Annotated[tuple[Address, ...], Field(max_length=4096)]
    mtu: Count
    mbit: Count  # 0: the driver does not report it


class Route(Tolerant):
    """How packets to a peer leave: through which interface, from which address."""

    nic: MaybeNicName
    source: MaybeAddress


class Gid(Tolerant):
    """An entry of a port's GID table; `address` is the IPv4 in it, or ""."""

    index: Count
    type: Annotated[str, _or_empty(product_name, what="the type of a GID", limit=32)]  # "RoCE v2"
    address: MaybeAddress
    nic: MaybeNicName


class Port(Tolerant):
    """A port of an RDMA device."""

    number: Count
    state: Word  # ACTIVE, INIT, DOWN
    gbit: Gbit
    link: Literal["InfiniBand", "Ethernet", ""]
    gids: Annotated[tuple[Gid, ...], Field(max_length=4096)]


class Hca(Tolerant):
    """An RDMA device; `gpu_distances` has PIX, PXB, PHB, NODE or SYS for each GPU."""

    name: Name
    gpu_distances: Annotated[tuple[Literal["PIX", "PXB", "PHB", "NODE", "SYS"], ...], Field(max_length=1024)]
    ports: Annotated[tuple[Port, ...], Field(max_length=255)]


class NetworkFacts(Tolerant):
    """A host's interfaces, its ways to the peers (by address), and its RDMA devices."""

    nics: Annotated[tuple[Nic, ...], Field(max_length=10_000)]
    routes: Annotated[dict[Address, Route], Field(max_length=10_000)]
    hcas: Annotated[tuple[Hca, ...], Field(max_length=1024)]


class GpuFacts(Tolerant):
    """A GPU as its driver reports it; 0 bytes or "": the driver does not report it."""

    name: Annotated[str, BeforeValidator(partial(product_name, what="the name of a GPU"))]
    memory_bytes: Bytes
    compute_capability: Capability = ""

    @property
    def capability(self) -> tuple[int, int] | None:
        """The compute capability as numbers."""
        return gpus.capability(self.compute_capability) if self.compute_capability else None


class FolderFacts(Tolerant):
    """A model folder as a host sees it; `sight` is equal where it is the same one, `shape` on copies."""

    exists: bool
    type: Annotated[str, _or_empty(product_name, what="the type of a file system", limit=64)]
    shared: bool
    cached: bool  # the kernel's page cache has its pages
    leads_out: bool
    shape: Digest
    sight: Digest


class HostFacts(NetworkFacts):
    """All that the plan uses of a host; of devices that no driver has taken only the number counts."""

    gpus: Annotated[tuple[GpuFacts, ...], Field(max_length=1024)]
    gpus_on_pci: Annotated[list[Any], Field(max_length=1024)]
    hcas_on_pci: Annotated[list[Any], Field(max_length=1024)]
    roce_on_pci: Annotated[list[Any], Field(max_length=1024)] = []  # Ethernet cards of other vendors
    cores: Annotated[int, _bounded("the number of cores", 2**20)]
    memory_bytes: Bytes
    disk_shared: bool = False  # the file system of weights_dir
    cgroup_obstacle: CgroupObstacle | None = None  # to rules by the cgroup of a socket; "": none
    model_folder: FolderFacts | None = None


def read(facts: Any, *, host: str) -> HostFacts:
    """The facts of module host_facts, proven; UntrustedError naming the host."""
    return validated(HostFacts, facts, what="the facts of the host are", where=host)
