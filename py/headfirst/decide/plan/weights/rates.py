"""The rates that the estimate of the weights' time uses: given, measured, or assumed and marked so."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

from headfirst.decide.cluster.types import Host
from headfirst.decide.plan.types import Rate

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
    found = [_slowest("disk", hosts, _disk), _processor(hosts, from_hub, convert)]
    if len(hosts) > 1:
        found.insert(0, _slowest("network", hosts, _network))
    if from_hub:
        rate = download_rate or ASSUMED_DOWNLOAD
        known: Known = "given" if download_rate else "assumed"
        found.insert(0, Rate(what="download", bytes_per_second=rate, text=_bits(rate), known=known))
    return found


def connections(found: Sequence[Rate]) -> int:
    """Connections from a node to the one before: a thread for each, and a core of it brings 8 Gbit/s."""
    network = next((rate.bytes_per_second for rate in found if rate.what == "network"), 0)
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
