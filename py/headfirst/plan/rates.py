"""The rates that the estimate of the weights' time reckons with: given, measured, or assumed and said so."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

from headfirst.cluster.types import Cluster, Host
from headfirst.plan.types import Rate

Known = Literal["given", "measured", "assumed"]

GBIT = 10**9 // 8  # bytes
# Where nobody says: a usual line, the link that servers without RDMA have, one NVMe disk, a small server.
ASSUMED_DOWNLOAD = GBIT
ASSUMED_NETWORK = 10 * GBIT
ASSUMED_DISK = 2 * 10**9
ASSUMED_CORES = 32
# Seconds of one core for each GB of the source, measured on an EPYC with SHA instructions: the hub's sha256
# and BitTorrent's tree, the sockets, reading, converting, writing a shard, and the hub's client on the head.
HASH_COST = 1.4
SEND_COST = 2.0
FETCH_COST = 2.0
CONVERT_COST = 1.0
SESSION_RATE = 10 * GBIT
MOST_SESSIONS = 8


def rates(cluster: Cluster, *, from_hub: bool, convert: bool) -> list[Rate]:
    """One rate of each kind that the weights of this cluster meet; of several hosts the slowest."""
    found = [_slowest("disk", cluster.ranks, _disk), _processor(cluster.ranks, from_hub, convert)]
    if len(cluster.ranks) > 1:
        found.insert(0, _slowest("network", cluster.ranks, _network))
    if from_hub:
        given = cluster.settings.download_rate
        rate = given or ASSUMED_DOWNLOAD
        known: Known = "given" if given else "assumed"
        found.insert(0, Rate(what="download", bytes_per_second=rate, text=_bits(rate), known=known))
    return found


def sessions(found: Sequence[Rate]) -> int:
    """Connections between two nodes: libtorrent has a thread for each, which does some 10 Gbit/s."""
    network = next((rate.bytes_per_second for rate in found if rate.what == "network"), 0)
    return max(1, min(MOST_SESSIONS, math.ceil(network / SESSION_RATE)))


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
    if host.network_rate:
        return host.network_rate, "given"
    return (host.link_rate, "measured") if host.link_rate else (ASSUMED_NETWORK, "assumed")


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
