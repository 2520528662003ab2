"""How long do the weights take, and what holds them up? A pure calculation.

A shard passes the stages one after the other while other shards are in the other stages, so all of them take
as long as the slowest stage does, plus what it waits at the beginning and the end: the shards that are on
their way at once, through the other stages. A stage is what one thing does for all shards:

    fetch       the head's line to the hub, or its disk; the lines of all nodes, where each fetches a part
    broadcast   the slowest link of the ring; a node sends on what it receives, so nodes add no bytes
    convert     processors, for all they do with a byte: hashes, sending, FP8 to BF16 (`verify` without that)
    disk        a node's disk, for all that is written and read there
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from headfirst.decide.cluster.types import Host
from headfirst.decide.plan.types import Rate, WeightsTime

Known = Literal["given", "measured", "assumed"]

GBIT = 10**9 // 8  # bytes
# Defaults: a usual line, the link that servers without RDMA have, one NVMe disk, a small server.
ASSUMED_DOWNLOAD = GBIT
ASSUMED_NETWORK = 10 * GBIT
ASSUMED_DISK = 2 * 10**9
ASSUMED_CORES = 32
# Seconds of one core for each GB of the source, measured on an EPYC with SHA instructions: the hub's sha256
# and the digests of pieces; receiving, proving, writing and sending on; the hub's client; FP8 to BF16.
HASH_COST = 0.7
SEND_COST = 1.2
FETCH_COST = 2.0
CONVERT_COST = 1.0
CONNECTION_RATE = 8 * GBIT
LEAST_CONNECTIONS, MOST_CONNECTIONS = 2, 16


def rates(hosts: Sequence[Host], download_rate: int | None, *, from_hub: bool, convert: bool) -> list[Rate]:
    """One rate of each kind that the weights meet on these hosts; of several hosts the slowest."""
    all_rates = [_slowest("disk", hosts, _disk), _processor(hosts, from_hub, convert)]
    if len(hosts) > 1:
        all_rates.insert(0, link(hosts))
    if from_hub:
        rate = download_rate or ASSUMED_DOWNLOAD
        known: Known = "given" if download_rate else "assumed"
        all_rates.insert(0, Rate(what="download", bytes_per_second=rate, text=_bits(rate), known=known))
    return all_rates


def link(hosts: Sequence[Host]) -> Rate:
    """The slowest link of these hosts."""
    return _slowest("network", hosts, _network)


def connections(all_rates: Sequence[Rate]) -> int:
    """Connections from a node to the one before: a thread for each, and a core of it brings 8 Gbit/s."""
    network = next((rate.bytes_per_second for rate in all_rates if rate.what == "network"), 0)
    return max(LEAST_CONNECTIONS, min(MOST_CONNECTIONS, math.ceil(network / CONNECTION_RATE)))


def _slowest(
    what: Literal["network", "disk"], hosts: Sequence[Host], ask: Callable[[Host], tuple[int, Known]]
) -> Rate:
    slowest = min(hosts, key=lambda host: ask(host)[0])
    rate, known = ask(slowest)
    text = _bits(rate) if what == "network" else f"{rate / 10**9:.3g} GB/s"
    if any(ask(host)[0] != rate for host in hosts):
        text += f" at {slowest.name}"
    return Rate(what=what, bytes_per_second=rate, text=text, known=known)


def _network(host: Host) -> tuple[int, Known]:
    links = max(1, len(host.weights_addresses))
    if host.network_rate:
        return links * host.network_rate, "given"
    return (links * host.link_rate, "measured") if host.link_rate else (links * ASSUMED_NETWORK, "assumed")


def _disk(host: Host) -> tuple[int, Known]:
    return (host.disk_rate, "given") if host.disk_rate else (ASSUMED_DISK, "assumed")


def _processor(hosts: Sequence[Host], from_hub: bool, convert: bool) -> Rate:
    cores = min(host.cores or ASSUMED_CORES for host in hosts)
    measured = all(host.cores for host in hosts)
    cost = HASH_COST + FETCH_COST * from_hub + SEND_COST * (len(hosts) > 1) + CONVERT_COST * convert
    return Rate(
        what="processor",
        bytes_per_second=cores / cost * 10**9,
        text=f"{cores} cores",
        known="measured" if measured else "assumed",
    )


def _bits(rate: int) -> str:
    gbit = rate / GBIT
    return f"{gbit:.3g} Gbit/s" if gbit >= 1 else f"{gbit * 1000:.3g} Mbit/s"


# Shards that a node fetches in parallel, and so arrive together; as many are on a node as FP8 at a time.
SHARDS_AT_ONCE = 8
# Where all nodes fetch, all shards are fetched in so many rounds at least (weights/sharing.py).
ROUNDS = 8
# Ethernet's and TCP's headers at an MTU of 1500 leave 1448 of 1538 bytes of a line's rate.
LINE_PAYLOAD = 1448 / 1538
# A node more passes the last piece on that much later.
HOP_SECONDS = 0.5


@dataclass(frozen=True)
class WeightsWork:
    """What is to be done. `served_bytes` are written besides the source if `convert`.

    Where the nodes need different layers, `kept` is the part (0 to 1) of the node that needs the most, and
    `sent` the part that leaves the head.
    """

    source_bytes: int
    served_bytes: int
    largest_shard_bytes: int
    nodes: int
    convert: bool
    from_hub: bool
    in_place: bool = False  # read and verified, not written
    on_share: bool = False  # and read over the network
    memory_bytes: int | None = None  # of the smallest node, None for enough
    kept: float = 1.0
    sent: float = 1.0
    fetchers: int = 1  # nodes that fetch from the hub, each by a line of its own

    @property
    def at_once_bytes(self) -> int:
        """The shards that are on their way at a time."""
        if self.fetchers == 1:
            return min(self.source_bytes, SHARDS_AT_ONCE * self.largest_shard_bytes)
        rounds = self.source_bytes // (self.largest_shard_bytes * self.fetchers * ROUNDS)
        each = max(1, min(SHARDS_AT_ONCE, rounds))
        return min(self.source_bytes, each * self.fetchers * self.largest_shard_bytes)

    @property
    def disk_bytes(self) -> int:
        """What passes through a node's disk: the source is written (read where it is already), so is what
        is made of it. Shards on their way are read from memory, or else once more by each that needs them."""
        through = self.source_bytes + (int(self.served_bytes * self.kept) if self.convert else 0)
        # Half of the memory: the other half is written to the disk meanwhile.
        if self.memory_bytes is None or 2 * self.at_once_bytes <= self.memory_bytes:
            return through
        return through + self.source_bytes * (int(self.nodes > 1) + int(self.convert))


def estimate(job: WeightsWork, rates: Sequence[Rate], *, share: bool = False) -> WeightsTime:
    """Time of `job`; `rates` has one of each kind (no download without a hub, no network with one node).

    With `share` the nodes fetch together where that is faster, which only a measurement shows.
    """
    kinds: dict[str, Rate] = {rate.what: rate for rate in rates}
    speeds = {kind: _payload(rate) for kind, rate in kinds.items()}
    stages = _stages(job, speeds)
    slowest = max(stages, key=lambda stage: stages[stage])
    own_lines = share and job.from_hub and job.fetchers < job.nodes
    return WeightsTime(
        seconds=pipelined(stages, at_once=job.at_once_bytes / job.source_bytes, nodes=job.nodes),
        stages=stages,
        bottleneck=slowest,
        reason=_reason(slowest, job, kinds),
        documented_seconds=_documented(job, speeds),
        own_lines_seconds=estimate(replace(job, fetchers=job.nodes), rates).seconds if own_lines else None,
        rates=list(rates),
    )


def pipelined(stages: Mapping[str, float], *, at_once: float, nodes: int) -> float:
    """Seconds of all stages together, from the seconds that each takes alone for all shards.

    `at_once` is the part of all bytes (0 to 1) that passes from stage to stage as one: the largest shard, or
    the shards that are fetched side by side. With one file it is 1, and nothing overlaps.
    """
    slowest = max(stages.values())
    return slowest + at_once * (sum(stages.values()) - slowest) + HOP_SECONDS * (nodes - 1)


def _payload(rate: Rate) -> float:
    return rate.bytes_per_second * (LINE_PAYLOAD if rate.what in ("download", "network") else 1)


def _stages(job: WeightsWork, speeds: Mapping[str, float]) -> dict[str, float]:
    stages = {"fetch": job.source_bytes / job.fetchers / speeds[_read_from(job, speeds)]}
    if job.nodes > 1:
        # No node receives what it fetched.
        received = job.source_bytes * job.sent * (1 - (job.fetchers - 1) / job.nodes)
        stages["broadcast"] = received / speeds["network"]
    stages["convert" if job.convert else "verify"] = job.source_bytes / speeds["processor"]
    if job.in_place:
        return stages
    return stages | {"disk": job.disk_bytes / speeds["disk"]}


def _read_from(job: WeightsWork, kinds: Container[str]) -> str:
    """What the first stage reads with."""
    if job.from_hub:
        return "download"
    return "network" if job.on_share and "network" in kinds else "disk"


def _documented(job: WeightsWork, speeds: Mapping[str, float]) -> float:
    """Download; convert on the head; copy the result to one node after the other. Each at the same rates."""
    seconds = job.source_bytes / min(speeds["download"], speeds["disk"]) if job.from_hub else 0.0
    if job.convert:
        through = job.source_bytes + job.served_bytes
        seconds += max(job.source_bytes / speeds["processor"], through / speeds["disk"])
    if job.nodes > 1:
        seconds += (job.nodes - 1) * job.served_bytes / min(speeds["network"], speeds["disk"])
    return seconds


def _reason(stage: str, job: WeightsWork, kinds: Mapping[str, Rate]) -> str:
    source = _gb(job.source_bytes)
    if stage == "fetch" and job.from_hub:
        each = f" on each of {job.fetchers} nodes" if job.fetchers > 1 else ""
        return f"the download: {source} at {kinds['download'].text}{each}"
    if stage == "fetch" and job.in_place:
        return f"reading the model folder: {source} at {kinds[_read_from(job, kinds)].text}"
    if stage == "broadcast":
        passed = _gb(int(job.source_bytes * job.sent))
        return f"the network between the nodes: {passed} at {kinds['network'].text}"
    if stage == "convert":
        return f"the processors: {source} to hash and convert on {kinds['processor'].text}"
    if stage == "verify":
        return f"the processors: {source} to hash on {kinds['processor'].text}"
    return f"the disk of a node: {_gb(job.disk_bytes)} at {kinds['disk'].text}"


def _gb(count: int) -> str:
    return f"{count / 10**9:,.1f} GB" if count >= 10**9 else f"{count / 10**6:,.1f} MB"
