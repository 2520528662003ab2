"""Which interface, RDMA devices and GID each rank uses, and why. A pure function of what the hosts report.

The inventory's nic, hca and ib_gid_index win over everything; hca=none keeps RDMA out.
"""

from __future__ import annotations

from collections.abc import Sequence

from headfirst.common.errors import InputError
from headfirst.decide.cluster.types import Host
from headfirst.decide.hardware.facts import NetworkFacts
from headfirst.decide.plan.host import rdma
from headfirst.decide.plan.types import NodeNetwork

NOT_ASKED = "not in the inventory, and the host was not probed (--probe)"


def choose(ranks: Sequence[Host], *, gpus: bool) -> list[NodeNetwork]:
    """One choice for each rank; with one rank there is nothing to connect. RDMA is for ranks on GPUs."""
    if len(ranks) == 1:
        return [NodeNetwork(host_ip=ranks[0].address, reasons=[])]
    agreed = _agreed(ranks) if gpus else None
    return [_choose(host, ranks, agreed, gpus=gpus) for host in ranks]


def _agreed(ranks: Sequence[Host]) -> rdma.Agreed | None:
    """The ports of hosts without `hca`: what the inventory sets for one host binds its peers.

    None where no such host was probed. Raises InputError where the ranks could not reach each other.
    """
    known = {host.name: host.network for host in ranks if host.network and host.hca is None}
    kept_out = [host.name for host in ranks if host.hca == "none"]
    stated = {host.name: host.hca for host in ranks if host.hca and host.hca != "none"}
    if kept_out and stated:
        name, hca = next(iter(stated.items()))
        raise InputError(
            f"hca=none is set for {', '.join(kept_out)}, and hca={hca} for {name}: "
            "the ranks of a replica use RDMA on all hosts, or on none",
            hint="Write the same on every host of the replica, or leave hca out.",
        )
    if kept_out:
        return rdma.no_rdma({host.name for host in ranks}, f"hca=none is set for {', '.join(kept_out)}")
    if not known:
        return None
    return rdma.follow(known, stated) if stated else rdma.agree(known)


def rdma_between(ranks: Sequence[Host], *, gpus: bool) -> bool | None:
    """Whether RDMA connects the ranks; None where a host was not probed and the inventory does not set it."""
    known = [
        True if network.hca else False if host.hca == "none" or host.network is not None else None
        for host, network in zip(ranks, choose(ranks, gpus=gpus), strict=True)
    ]
    return False if False in known else None if None in known else True


def _choose(host: Host, ranks: Sequence[Host], agreed: rdma.Agreed | None, *, gpus: bool) -> NodeNetwork:
    nic, address, why = _nic(host, [peer.address for peer in ranks if peer is not host])
    reasons = [why]
    hca, index = None, None
    if gpus:
        hca, why = _hca(host, agreed)
        reasons.append(why)
    if hca:
        index, why = _gid_index(host, hca)
        reasons.append(why)
    return NodeNetwork(nic=nic, hca=hca, ib_gid_index=index, host_ip=address, reasons=reasons)


def _nic(host: Host, peers: Sequence[str]) -> tuple[str | None, str, str]:
    """Interface, this rank's own address on it, and why."""
    if host.nic:
        return host.nic, host.address, f"interface {host.nic}: set in the inventory"
    facts = host.network
    if facts is None:
        return None, host.address, f"interface: {NOT_ASKED}"
    for nic in facts.nics:
        if host.address in nic.addresses:
            return nic.name, host.address, f"interface {nic.name}: it holds {host.address}"
    # Behind address translation the ranks must still name an address of their own.
    for route in (facts.routes[peer] for peer in peers if peer in facts.routes):
        why = f"interface {route.nic}: none holds {host.address}, packets to peers leave from {route.source}"
        return route.nic, route.source, why
    return None, host.address, f"interface: none holds {host.address}, and there is no route to the peers"


def _hca(host: Host, agreed: rdma.Agreed | None) -> tuple[str | None, str]:
    """NCCL_IB_HCA and why; None for sockets."""
    if host.hca == "none":
        return None, "RDMA: hca=none is set in the inventory"
    if host.hca:
        return rdma.exact(host.hca), f"RDMA over {host.hca}: set in the inventory"
    ports = None if agreed is None else agreed.ports.get(host.name)
    if agreed is None or ports is None:
        return None, f"RDMA: {NOT_ASKED}"
    if not ports:
        return None, f"no RDMA, NCCL will use sockets: {agreed.reason}"
    return rdma.exact(",".join(ports)), f"RDMA over {', '.join(ports)}: {agreed.reason}"


def _gid_index(host: Host, hca: str) -> tuple[int | None, str]:
    """NCCL_IB_GID_INDEX and why; None where NCCL needs none or must choose itself."""
    if host.ib_gid_index is not None:
        return host.ib_gid_index, f"GID index {host.ib_gid_index}: set in the inventory"
    if host.network is None:
        return None, f"GID index: {NOT_ASKED}"
    return _common_gid(host.network, hca)


def _common_gid(facts: NetworkFacts, hca: str) -> tuple[int | None, str]:
    ports = rdma.named(facts, hca)
    if not ports:
        return None, f"GID index: this host has no active port of {hca}"
    if all(port.link == "InfiniBand" for _, port in ports):
        return None, "no GID index: InfiniBand needs none"
    tables = [rdma.roce_v2(port) for _, port in ports]
    common = set.intersection(*(set(table) for table in tables))
    if not common:
        listed = ", ".join(
            f"{name} {sorted(table) or 'none'}" for (name, _), table in zip(ports, tables, strict=True)
        )
        return (
            None,
            f"no GID index is RoCE v2 with IPv4 on all of them ({listed}): NCCL 2.21 or newer chooses",
        )
    index = min(common)
    return index, f"GID index {index}: RoCE v2 with {', '.join(table[index] for table in tables)}"
