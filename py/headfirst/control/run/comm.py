"""The result of a test of the ranks' communication, as a host's part reports it and a run records it.

Bandwidths are bytes a second, links Gbit/s.
"""

from __future__ import annotations

from typing import Literal

from headfirst.control.run.events import Finding
from headfirst.decide.frozen import Frozen


class CommRank(Frozen):
    """A host of the test; rates are 0 where they are not known."""

    host: str
    rank: int
    address: str
    link_gbit: float
    rdma_gbit: float


class Pair(Frozen):
    """One try to connect, from one host to a port of another."""

    source: str
    target: str
    address: str
    port: int
    rendezvous: bool
    ok: bool
    state: Literal["ok", "stranger", "refused", "dropped", "unreachable"]
    words: str


class Row(Frozen):
    """All-reduces of one size. `graph`: replayed from a CUDA graph; `wrong`: how many sums were."""

    bytes: int
    seconds: float
    algbw: float
    busbw: float
    wrong: int
    graph: bool


class Run(Frozen):
    """One back-end; `stopped`: why not all sizes were tried; `link_gbit`: what links give, 0: unknown."""

    backend: str
    ranks: int
    rows: list[Row]
    stopped: str
    link_gbit: float


class Trouble(Frozen):
    """Why a host's part ended early, and when (seconds since 1970; 0: unknown). `echo`: another one's did."""

    host: str
    at: float
    doing: str
    message: str
    fix: str
    echo: bool


class NcclChannels(Frozen):
    """How many of NCCL's channels of a host use RDMA, do so from GPU memory, use TCP, or stay inside."""

    version: str
    network: str
    devices: list[str]
    rdma: int
    direct: int
    socket: int
    inside: int
    disabled: list[str]


class Comm(Frozen):
    """Everything. `rendezvous_held`: a service uses that port; `port`: where the collectives met."""

    hosts: list[CommRank]
    pairs: list[Pair]
    rendezvous_held: bool
    port: int
    torch: str
    runs: list[Run]
    errors: list[Trouble]
    nccl: dict[str, NcclChannels]
    findings: list[Finding]

    @property
    def failed(self) -> bool:
        """Whether something prevents serving."""
        return any(finding.severity == "error" for finding in self.findings)
