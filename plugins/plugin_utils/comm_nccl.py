"""Which way NCCL's bytes go between the ranks, from the lines of NCCL_DEBUG=INFO. A pure function."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

# `Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA`; plugins are NET/IBext_v8, NET/AWS Libfabric ...;
# `0(1)` is a device reached through the GPU 1 of this host.
_NET = re.compile(r"-> *\d+\[\w+\].* via NET/(?P<net>[^/]+)/[\d()]+(?P<direct>/GDRDMA)?")
_INSIDE = re.compile(r"-> *\d+\[\w+\].* via (?P<way>P2P|SHM)\b")
_NETWORK = re.compile(r"Using network (?P<name>\S.*)$")
_DEVICES = re.compile(r"NET/(?P<net>\w+) ?: ?Using (?P<list>\[0\].*)$")
_DEVICE = re.compile(r"\[\d+\]([^\s<]+)")
_VERSION = re.compile(r"NCCL version (\S+)")
_NO_DIRECT = re.compile(r"GPU Direct RDMA Disabled for .*$")


def transport(lines: Iterable[str]) -> dict[str, Any]:
    """The ways of one node's channels.

    {version, network, devices, rdma, direct, socket, inside, disabled}: how many channels to other hosts go
    over RDMA, how many of those from GPU memory (GDRDMA), over TCP sockets, and how many stay in the host;
    `devices` are those of `network`; `disabled` why GPUDirect is not used.
    """
    count: Counter[str] = Counter()
    devices: dict[str, list[str]] = {}
    networks, versions, disabled = [], [], []
    for line in lines:
        if found := _NET.search(line):
            count["socket" if found["net"] == "Socket" else "rdma"] += 1
            count["direct"] += bool(found["direct"])
        elif _INSIDE.search(line):
            count["inside"] += 1
        elif found := _NETWORK.search(line):
            networks.append(found["name"].strip())
        elif found := _DEVICES.search(line):
            devices[found["net"]] = _DEVICE.findall(found["list"].partition("; OOB")[0])
        elif found := _NO_DIRECT.search(line):
            disabled.append(found[0])
        elif found := _VERSION.search(line):
            versions.append(found[1])
    network = networks[0] if networks else ""
    return {
        "version": versions[0] if versions else "",
        "network": network,
        "devices": devices.get(network.split("_", maxsplit=1)[0], []),
        **{way: count[way] for way in ("rdma", "direct", "socket", "inside")},
        "disabled": sorted(set(disabled)),
    }
