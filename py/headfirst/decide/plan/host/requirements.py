"""What role check requires of a host: devices, memory, disk, ports and hosts that it must reach. Pure."""

from __future__ import annotations

from typing import Any

from headfirst.decide import engines
from headfirst.decide.cluster.settings import ServiceSettings
from headfirst.decide.cluster.types import Cluster, Host
from headfirst.decide.cluster.values import memory_bytes
from headfirst.decide.plan.host import memory, rdma
from headfirst.decide.plan.monitoring import monitoring_ports
from headfirst.decide.plan.types import Node, NodeNetwork, Plan, PlannedReplica, PlannedRouter, PlannedService
from headfirst.decide.plan.weights.placement import may_be_in_place

Rank = tuple[PlannedService, PlannedReplica, Node]
_GB = 10**9


def requirements(cluster: Cluster, plan: Plan, host: Host) -> dict[str, Any]:
    """Variables of the role for a host; a spare must be able to run any rank."""
    ranks = _of_spare(plan) if host in cluster.spares else ranks_on(plan, host)
    disk = next((disk for disk in plan.disks if disk.host == host.name), None)
    settings = [cluster.service(service.name).settings for service, _, _ in ranks]
    folder, required = next(
        (
            (service.model, of_rank.weights_shared == "in_place")
            for (service, _, _), of_rank in zip(ranks, settings, strict=True)
            if may_be_in_place(of_rank) and not service.convert_to_bf16
        ),
        ("", False),
    )
    return {
        "check_is_rank": bool(ranks),
        "check_model_folder": folder,
        "check_model_folder_required": required,
        **(_of_ranks(cluster, ranks, settings, host) if ranks else {}),
        "check_ports": _ports(cluster, plan, host, ranks),
        "check_disk_path": disk.path if disk else "/var/lib/headfirst",
        "check_min_disk_gb": round(disk.bytes / _GB, 1) if disk else 0.0,
    }


def ranks_on(plan: Plan, host: Host) -> list[Rank]:
    """The ranks on a host."""
    return [
        (service, replica, node)
        for service in plan.services
        for replica, node in service.ranks
        if node.host == host.name
    ]


def routers_on(plan: Plan, host: Host) -> list[PlannedRouter]:
    """The routers on a host."""
    return [router for service in plan.services for router in service.routers if router.host == host.name]


def _of_spare(plan: Plan) -> list[Rank]:
    replicas = [(service, service.replicas[0]) for service in plan.services]
    return [(service, replica, replica.nodes[-1]) for service, replica in replicas]


def _ports(cluster: Cluster, plan: Plan, host: Host, ranks: list[Rank]) -> list[int]:
    heads = [replica for _, replica, node in ranks if node.rank == 0]
    engine = [replica.engine_port for replica in heads]
    engine += [port for _, _, node in ranks for port in node.more_ports]
    engine += [port for replica in heads for port in replica.rendezvous_ports]
    routers = [port for router in routers_on(plan, host) for port in (router.port, router.metrics_port)]
    page = [plan.webui.port] if plan.webui and plan.webui.host == host.name else []
    proxy = [plan.proxy.port, plan.proxy.metrics_port] if plan.proxy and plan.proxy.host == host.name else []
    return [*engine, *routers, *page, *monitoring_ports(cluster, host), *proxy]


def _of_ranks(
    cluster: Cluster, ranks: list[Rank], settings: list[ServiceSettings], host: Host
) -> dict[str, Any]:
    """Of a host with ranks, beyond ports and disk."""
    on_gpus = any(service.device == "cuda" for service, _, _ in ranks)
    peers = {
        peer.address: None
        for service, replica, _ in ranks
        for other in (service.replicas if service.transfer else [replica])
        for peer in other.nodes
        if peer.host != host.name
    }
    transfer_ports = [replica.transfer_port for _, replica, _ in ranks if replica.transfer_port]
    network = next((node.network for _, _, node in ranks if node.network.nic), ranks[0][2].network)
    if host in cluster.spares:  # its devices have names of their own
        hca = rdma.exact(host.hca) if host.hca else None
        network = NodeNetwork(nic=host.nic, hca=hca, host_ip=host.address, reasons=[])
    kept = [
        host_memory for service, replica, _ in ranks if (host_memory := service.sized(replica).host_memory)
    ]
    shm = sum(memory_bytes(of_rank.shm_size) for of_rank in settings) if on_gpus else 0
    kv_shm = sum(host_memory.shared_bytes for host_memory in kept)
    return {
        "check_services": list({service.name: None for service, _, _ in ranks if service.name}),
        "check_images": list({node.container.image: None for _, _, node in ranks}),
        "check_gpus": (host.gpus or 0) if on_gpus else 0,
        "check_min_cuda": max((service.engine_cuda for service, _, _ in ranks), key=_version),
        "check_min_memory_gb": round(memory.required_bytes(kept) / _GB, 1),
        # Of the host's /dev/shm: containers have the host's IPC.
        "check_min_shm_gb": round((shm + kv_shm) / _GB, 1),
        "check_min_kv_shm_gb": round(kv_shm / _GB, 1),
        "check_open_peers": list(peers),
        "check_open_ports": list({replica.dist_port: None for _, replica, _ in ranks}) + transfer_ports,
        "check_slow_start_args": [word for of_rank in settings for word in _slow_start(of_rank)],
        "check_nic": network.nic or "",
        "check_hca": network.hca or "",
        "check_ib_gid_index": -1 if network.ib_gid_index is None else network.ib_gid_index,
    }


def _slow_start(settings: ServiceSettings) -> list[str]:
    slow = engines.get(settings.engine, settings.engine_version).diagnostics.slow_start_flags
    return [word for word in settings.engine_args if word.partition("=")[0] in slow]


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdecimal())
