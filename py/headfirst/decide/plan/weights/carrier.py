"""What carries the weights between the hosts of a service: TCP, or RDMA over ports that are alike on all."""

from __future__ import annotations

from collections.abc import Sequence

from headfirst.common.errors import InputError
from headfirst.decide.cluster.types import Host, Service
from headfirst.decide.engines import nccl
from headfirst.decide.hardware.facts import Port
from headfirst.decide.plan.host import network, rdma
from headfirst.decide.plan.types import Carrier

_TCP_INSTEAD = "Set weights_carrier=tcp, or fix the cause; `deploy check` examines RDMA devices."


def choose(service: Service, *, where: str | None) -> Carrier:
    """The carrier that the inventory asks for; `where` it does. Raises InputError where it cannot be."""
    hosts, settings = service.hosts, service.settings
    if len(hosts) == 1:
        return Carrier(kind="tcp")
    if settings.weights_carrier == "tcp":
        return Carrier(kind="tcp", note="" if settings.weights_encrypt else _offer(hosts))
    if settings.weights_encrypt:
        raise InputError(
            "weights_carrier=rdma and weights_encrypt=true exclude each other",
            where=where,
            hint="Over RDMA the weights are not encrypted: remove one of the two settings.",
        )
    if unknown := [host.name for host in hosts if _is_unknown(host)]:
        return Carrier(kind="rdma", note=f"the ports of {', '.join(unknown)} are not known yet (--probe)")
    chosen = network.choose(hosts, gpus=True)
    ports = {host.name: _ports(host, choice.hca, where) for host, choice in zip(hosts, chosen, strict=True)}
    if len({len(host_ports) for host_ports in ports.values()}) > 1:
        listed = ", ".join(f"{name} {len(host_ports)}" for name, host_ports in ports.items())
        raise InputError(
            f"weights_carrier=rdma needs as many RDMA ports on every host: {listed}",
            where=where,
            hint="Write hca= on each host, as many devices on all, in the same order of networks.",
        )
    return Carrier(kind="rdma", ports=ports)


def is_asked(service: Service) -> bool:
    """Whether the choice needs facts of the hosts that the inventory does not have."""
    needs_ports = service.settings.weights_carrier == "rdma" and len(service.hosts) > 1
    return needs_ports and any(_is_unknown(host) for host in service.hosts)


def _is_unknown(host: Host) -> bool:
    if "rdma" in host.lacks:  # the role rdma is still to make its devices work
        return True
    named = bool(host.hca and nccl.rdma_devices(host.hca)) and host.ib_gid_index is not None
    return host.network is None and host.hca != "none" and not named


def _offer(hosts: Sequence[Host]) -> str:
    """That RDMA could carry them, where all hosts have it."""
    known = {host.name: host.network for host in hosts if host.network and host.hca != "none"}
    if len(known) < len(hosts) or not all(rdma.agree(known).ports.values()):
        return ""
    return "these hosts have RDMA ports: weights_carrier=rdma uses them (unproven on RDMA hardware)"


def _ports(host: Host, hca: str | None, where: str | None) -> list[str]:
    """DEVICE:PORT:GID_INDEX of each port that a value of NCCL_IB_HCA names."""
    if host.network is None and hca:
        return [
            f"{word if ':' in word else f'{word}:1'}:{host.ib_gid_index}"
            for word in hca.lstrip("=").split(",")
        ]
    named = rdma.named(host.network, hca) if host.network and hca else []
    if not named:
        why = (
            "hca=none"
            if host.hca == "none"
            else f"no active RDMA port{f' of {host.hca or hca}' if hca else ''}"
        )
        raise InputError(f"weights_carrier=rdma, and {host.name} has {why}", where=where, hint=_TCP_INSTEAD)
    return [
        f"{name.partition(':')[0]}:{port.number}:{_gid_index(host, name, port, where)}"
        for name, port in named
    ]


def _gid_index(host: Host, name: str, port: Port, where: str | None) -> int:
    if port.link == "InfiniBand":
        return 0
    if host.ib_gid_index is not None:
        return host.ib_gid_index
    indices = rdma.roce_v2(port)
    if not indices:
        raise InputError(
            f"weights_carrier=rdma, and {name} of {host.name} has no GID of RoCE v2 with IPv4",
            where=where,
            hint=_TCP_INSTEAD,
        )
    return min(indices)
