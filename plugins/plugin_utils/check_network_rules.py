"""Rules of role `check` about interfaces and RDMA. Numbers: docs/diagnose.md."""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from ansible_collections.headfirst.serving.plugins.plugin_utils.check_rules import Facts, Limits, rule, some

# Kinds of interfaces that lead to containers or machines on the same host, or into an overlay. veth is none:
# on the host it holds no address, and inside a container it is the way out.
INSIDE = {"bridge", "tun", "vxlan", "dummy", "macvlan", "ipvlan"}


@rule(
    "nic-kind",
    failures=(6,),
    severity="warning",
    why="Such an interface does not lead to the other hosts, or only through a slow overlay.",
    fix="Set address in the inventory to that of the network card between the hosts.",
)
def _nic_kind(facts: Facts, limits: Limits) -> Iterator[str]:
    nic = holder(facts, limits["address"])
    if limits["address"].startswith("169.254."):
        yield f"{limits['address']} is a link-local address"
    elif nic and nic["kind"] in INSIDE:
        yield f"{limits['address']} is on {nic['name']}, which is a {nic['kind']}"


@rule(
    "nic-name",
    failures=(7, 1),
    why="The ranks are configured to use this interface, and end or hang where it is missing.",
    fix="Correct nic in the inventory for this host (ip -br address); names differ between hosts.",
)
def _nic_name(facts: Facts, limits: Limits) -> Iterator[str]:
    there = [nic["name"] for nic in facts["nics"]]
    if limits["nic"] and limits["nic"] not in there:
        yield f"there is no interface {limits['nic']} (it has {', '.join(there)})"


@rule(
    "nic-address",
    failures=(1, 2),
    severity="warning",
    why="The ranks would connect to one address and send from another.",
    fix="Take nic out of the inventory, or set it to the interface that holds address.",
)
def _nic_address(facts: Facts, limits: Limits) -> Iterator[str]:
    nic = holder(facts, limits["address"])
    names = [interface["name"] for interface in facts["nics"]]
    if nic and limits["nic"] in names and limits["nic"] != nic["name"]:
        yield f"{limits['address']} is on {nic['name']}, and the ranks are configured to use {limits['nic']}"


@rule(
    "nic-route",
    failures=(1, 2, 5),
    severity="warning",
    why="The ranks would offer one address and send from another: they wait for each other without end.",
    fix="Set address in the inventory to one of the network that the hosts share, or correct the routes.",
)
def _nic_route(facts: Facts, limits: Limits) -> Iterator[str]:
    if not holder(facts, limits["address"]):
        return  # rule address reports this
    peers = defaultdict(list)
    for peer, way in facts["routes"].items():
        if way["source"] and way["source"] != limits["address"]:
            peers[way["source"], way["nic"]].append(peer)
    for (source, nic), reached in peers.items():
        yield f"packets to {some(reached)} leave from {source} ({nic}), not from {limits['address']}"


@rule(
    "firewall",
    failures=(9, 1),
    why="NCCL and gloo listen at ports of their own choice: the ranks wait for each other without end.",
    fix="Let the hosts reach each other at all TCP ports.",
)
def _firewall(facts: Facts, limits: Limits) -> Iterator[str]:
    yield from _closed(facts, rejected=False)


@rule(
    "firewall-rejects",
    failures=(9, 1),
    why="NCCL and gloo listen at ports of their own choice: the ranks do not reach each other.",
    fix="`deploy up -t tuning` admits all hosts of the inventory in nftables, ufw and firewalld.",
    role="host_tuning",
)
def _firewall_rejects(facts: Facts, limits: Limits) -> Iterator[str]:
    yield from _closed(facts, rejected=True)


def _closed(facts: Facts, *, rejected: bool) -> Iterator[str]:
    ports = defaultdict(list)
    for cut in facts["cut_ports"]:
        if cut["rejected"] == rejected:
            ports[cut["port"]].append(cut["peer"])
    for port, peers in ports.items():
        singular = len(peers) == 1
        yield (
            f"{some(peers)} reject{'s' * singular} this host at port {port}"
            if rejected
            else f"{some(peers)} answer{'s' * singular}, but not at port {port}"
        )


@rule(
    "public-address",
    failures=(11,),
    severity="warning",
    why="The ranks' queues accept objects from every client: foreign code could run here.",
    fix="Use addresses of a private network, or admit only the peers in a firewall.",
)
def _public(facts: Facts, limits: Limits) -> Iterator[str]:
    if limits["address"] and ipaddress.ip_address(limits["address"]).is_global:
        yield f"the ranks would listen on {limits['address']}, which the whole internet can reach"


@rule(
    "hca",
    failures=(14, 19),
    why="NCCL hangs, or falls back to TCP, where a device is missing or its port is not active.",
    fix="See `ibstat`: plug the cable, start a subnet manager (InfiniBand), or correct hca in the inventory.",
)
def _hca(facts: Facts, limits: Limits) -> Iterator[str]:
    for name in _names(limits):
        ports = [port for hca in _named(facts, limits, name) for port in hca["ports"]]
        if not ports:
            yield f"there is no RDMA device {name}"
        elif all(port["state"] != "ACTIVE" for port in ports):
            told = ", ".join(f"{port['state']}, {port['physical']}" for port in ports)
            yield f"no port of {name} is active ({told})"


@rule(
    "subnet-manager",
    failures=(19,),
    severity="warning",
    why="The port cannot be used until a subnet manager has given it an address.",
    fix="Start the subnet manager of the switch, or opensm on one host.",
)
def _subnet_manager(facts: Facts, limits: Limits) -> Iterator[str]:
    for hca in facts["hcas"]:
        for port in hca["ports"]:
            waits = port["state"] == "INIT" and port["physical"] == "LinkUp"
            if waits and port["link"] == "InfiniBand" and hca not in chosen(facts, limits):
                yield f"{hca['name']} has a link and waits for a subnet manager (INIT)"


@rule(
    "gid",
    failures=(12,),
    why="With another GID the ranks do not connect: error 12, vendor err 129.",
    fix="Take ib_gid_index out of the inventory, or give the port's interface an IPv4 address (show_gids).",
)
def _gid(facts: Facts, limits: Limits) -> Iterator[str]:
    index = limits["ib_gid_index"]
    for hca in chosen(facts, limits):
        for port in hca["ports"]:
            if port["state"] != "ACTIVE" or port["link"] != "Ethernet":
                continue
            good = [gid["index"] for gid in port["gids"] if gid["type"] == "RoCE v2" and gid["address"]]
            if not good:
                yield f"{hca['name']} has no GID of RoCE v2 with an IPv4 address"
            elif index >= 0 and index not in good:
                yield f"GID {index} of {hca['name']} is not RoCE v2 with IPv4; {', '.join(map(str, good))} is"


@rule(
    "rdma-devices",
    role="rdma",
    failures=(17,),
    why="Containers get no RDMA device then, and NCCL uses TCP without a warning.",
    fix="modprobe ib_uverbs, and write ib_uverbs to /etc/modules-load.d/rdma.conf; install rdma-core.",
)
def _rdma_devices(facts: Facts, limits: Limits) -> Iterator[str]:
    if chosen(facts, limits) and not facts["rdma_devices"]:
        yield "there is no /dev/infiniband/uverbs*, though the host has RDMA devices"


@rule(
    "gpu-direct",
    role="rdma",
    gpus=True,
    failures=(15,),
    severity="warning",
    why="Without GPUDirect every byte passes through the host's memory on its way to the network.",
    fix="modprobe nvidia_peermem, and write nvidia_peermem to /etc/modules-load.d/; or use the open driver.",
)
def _gpu_direct(facts: Facts, limits: Limits) -> Iterator[str]:
    driver = facts["driver"]
    # The open driver hands memory over by DMA-BUF.
    closed = driver["running"] and not driver["open"]
    if closed and chosen(facts, limits) and "nvidia_peermem" not in driver["modules"]:
        yield "the module nvidia_peermem is not loaded"


def holder(facts: Facts, address: str) -> dict[str, Any] | None:
    """The interface that holds the address."""
    return next((nic for nic in facts["nics"] if address and address in nic["addresses"]), None)


def chosen(facts: Facts, limits: Limits) -> list[dict[str, Any]]:
    """RDMA devices that the ranks will use (check_hca)."""
    return [hca for name in _names(limits) for hca in _named(facts, limits, name)]


def _names(limits: Limits) -> list[str]:
    """Devices as check_hca names them; what begins with ^ names those that are left out."""
    if not limits["hca"] or limits["hca"].startswith("^"):
        return []
    return [word.partition(":")[0] for word in limits["hca"].lstrip("=").split(",")]


def _named(facts: Facts, limits: Limits, name: str) -> list[dict[str, Any]]:
    """As NCCL understands it: without = a name is also a prefix, unless a device has just this name."""
    exact = [hca for hca in facts["hcas"] if hca["name"] == name]
    if exact or limits["hca"].startswith("="):
        return exact
    return [hca for hca in facts["hcas"] if hca["name"].startswith(name)]
