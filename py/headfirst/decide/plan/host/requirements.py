"""What role check requires of a host: devices, memory, disk, ports and hosts that it must reach. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from headfirst.decide import engines
from headfirst.decide.cluster.settings import ServiceSettings
from headfirst.decide.cluster.types import Cluster, Host
from headfirst.decide.cluster.values import memory_bytes
from headfirst.decide.plan.host import memory, rdma
from headfirst.decide.plan.monitoring import monitoring_ports
from headfirst.decide.plan.types import Node, NodeNetwork, Plan, PlannedReplica, PlannedRouter, PlannedService
from headfirst.decide.plan.weights.placement import may_be_in_place

Rank = tuple[PlannedService, PlannedReplica, Node]


@dataclass(frozen=True)
class RankRequirements:
    """What the ranks of a host need beyond ports and disk; sizes are in bytes."""

    services: list[str]  # whose ranks run there; empty in the short form of an inventory
    images: list[str]
    gpus: int  # 0 on CPU
    min_cuda: str  # that the driver must support
    memory_bytes: int  # that ranks keep for KV caches and weights; 0 where they keep nothing
    shm_bytes: int  # of the host's /dev/shm: containers have the host's IPC
    kv_shm_bytes: int  # of these, for KV caches
    peers: list[str]  # addresses of hosts with ranks of the same replicas, or of a divided service
    dist_ports: list[int]  # at which it must be reached
    slow_start_args: list[str]  # engine arguments after which a start takes long
    network: NodeNetwork


@dataclass(frozen=True)
class Requirements:
    """What a host must have and reach; `ranks` is None where none runs there."""

    ports: list[int]
    disk_path: str
    disk_bytes: int
    model_folder: str  # "" where no model is served from a folder of the host
    model_folder_required: bool
    ranks: RankRequirements | None


def requirements(cluster: Cluster, plan: Plan, host: Host) -> Requirements:
    """Those of a host; a spare must be able to run any rank."""
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
    return Requirements(
        ports=_ports(cluster, plan, host, ranks),
        disk_path=disk.path if disk else "/var/lib/headfirst",
        disk_bytes=disk.bytes if disk else 0,
        model_folder=folder,
        model_folder_required=required,
        ranks=_of_ranks(cluster, ranks, settings, host) if ranks else None,
    )


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


def rendezvous_ports(ranks: list[Rank]) -> list[int]:
    """Ports of a host at which ranks meet; a message to one of them can run code there."""
    return [port for _, replica, node in ranks if node.rank == 0 for port in replica.rendezvous_ports]


def _of_spare(plan: Plan) -> list[Rank]:
    replicas = [(service, service.replicas[0]) for service in plan.services]
    return [(service, replica, replica.nodes[-1]) for service, replica in replicas]


def _ports(cluster: Cluster, plan: Plan, host: Host, ranks: list[Rank]) -> list[int]:
    engine = [replica.engine_port for _, replica, node in ranks if node.rank == 0]
    engine += [port for _, _, node in ranks for port in node.more_ports]
    routers = [port for router in routers_on(plan, host) for port in (router.port, router.metrics_port)]
    page = [plan.webui.port] if plan.webui and plan.webui.host == host.name else []
    proxy = [plan.proxy.port, plan.proxy.metrics_port] if plan.proxy and plan.proxy.host == host.name else []
    return [*engine, *rendezvous_ports(ranks), *routers, *page, *monitoring_ports(cluster, host), *proxy]


def _of_ranks(
    cluster: Cluster, ranks: list[Rank], settings: list[ServiceSettings], host: Host
) -> RankRequirements:
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
    return RankRequirements(
        services=list({service.name: None for service, _, _ in ranks if service.name}),
        images=list({node.container.image: None for _, _, node in ranks}),
        gpus=(host.gpus or 0) if on_gpus else 0,
        min_cuda=max((service.engine_cuda for service, _, _ in ranks), key=_version),
        memory_bytes=memory.required_bytes(kept),
        shm_bytes=shm + sum(host_memory.shared_bytes for host_memory in kept),
        kv_shm_bytes=sum(host_memory.shared_bytes for host_memory in kept),
        peers=list(peers),
        dist_ports=list({replica.dist_port: None for _, replica, _ in ranks}) + transfer_ports,
        slow_start_args=[word for of_rank in settings for word in _slow_start(of_rank)],
        network=network,
    )


def _slow_start(settings: ServiceSettings) -> list[str]:
    slow = engines.get(settings.engine, settings.engine_version).diagnostics.slow_start_flags
    return [word for word in settings.engine_args if word.partition("=")[0] in slow]


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdecimal())
