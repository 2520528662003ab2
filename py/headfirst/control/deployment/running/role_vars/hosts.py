"""Variables of the roles that prepare a host: check, host_tuning, the drivers."""

from __future__ import annotations

from typing import Any

from headfirst.control.deployment.running.inventory import DEVICE_GROUPS, OWN_GROUPS
from headfirst.control.deployment.running.role_vars import HostVars, merged
from headfirst.control.deployment.running.role_vars.front import closed_ports
from headfirst.decide import engines
from headfirst.decide.cluster.settings import ServiceSettings
from headfirst.decide.cluster.types import Cluster, Host
from headfirst.decide.plan.host import rdma
from headfirst.decide.plan.monitoring import exporter_ports, monitoring_ports
from headfirst.decide.plan.types import Node, NodeNetwork, Plan, Replica, Router, Service
from headfirst.decide.plan.weights.placement import may_be_in_place

GB = 10**9
GPU_ROLES = ("nvidia_driver", "rdma", "nvidia_container_toolkit")


def check_vars(cluster: Cluster, plan: Plan) -> HostVars:
    """Variables per host for `playbooks/check.yml` alone."""
    return {host.name: _check(cluster, plan, host) for host in cluster.hosts}


def hardware_vars(cluster: Cluster, plan: Plan) -> HostVars:
    """Variables per host for `playbooks/hardware.yml` alone."""
    hosts = {
        host.name: _host_tuning(cluster, plan, host) | _drivers(cluster, plan, host)
        for host in (*cluster.nodes, *cluster.router_hosts, *([cluster.webui] if cluster.has_proxy else []))
    }
    return merged(check_vars(cluster, plan), hosts)


def _on(plan: Plan, host: Host) -> list[tuple[Service, Replica, Node]]:
    """The ranks on a host."""
    return [
        (service, replica, node)
        for service in plan.services
        for replica in service.replicas
        for node in replica.nodes
        if node.host == host.name
    ]


def _routers_on(plan: Plan, host: Host) -> list[Router]:
    """The routers on a host."""
    return [router for service in plan.services for router in service.routers if router.host == host.name]


def _as_spare(plan: Plan) -> list[tuple[Service, Replica, Node]]:
    """Ranks of which a spare must be able to run any."""
    replicas = [(service, service.replicas[0]) for service in plan.services]
    return [(service, replica, replica.nodes[-1]) for service, replica in replicas]


def _rendezvous_ports(ranks: list[tuple[Service, Replica, Node]]) -> list[int]:
    """Ports of a host at which ranks meet; a message to one of them can run code there."""
    return [port for _, replica, node in ranks if node.rank == 0 for port in replica.rendezvous_ports]


def _check(cluster: Cluster, plan: Plan, host: Host) -> dict[str, Any]:
    ranks = _as_spare(plan) if host in cluster.spares else _on(plan, host)
    ports = [replica.engine_port for _, replica, node in ranks if node.rank == 0]
    routers = [port for one in _routers_on(plan, host) for port in (one.port, one.metrics_port)]
    webui = [plan.webui.port] if plan.webui and plan.webui.host == host.name else []
    watching = monitoring_ports(cluster, host)
    proxy = [plan.proxy.port, plan.proxy.metrics_port] if plan.proxy and plan.proxy.host == host.name else []
    # Replicas of one service on a host share its weights.
    weights = {service.weights.directory: service.weights.disk_bytes for service, _, _ in ranks}
    folders = {cluster.service(service.name).settings.weights_dir: None for service, _, _ in ranks}
    folders_in_place = [
        (service.model, own.weights_shared == "in_place")
        for service, _, _ in ranks
        if may_be_in_place(own := cluster.service(service.name).settings) and not service.convert_to_bf16
    ]
    folder, required = folders_in_place[0] if folders_in_place else ("", False)
    return {
        "check_is_rank": bool(ranks),
        "check_model_folder": folder,
        "check_model_folder_required": required,
        **(_check_rank(cluster, plan, ranks, host) if ranks else {}),
        "check_ports": [*ports, *_rendezvous_ports(ranks), *routers, *webui, *watching, *proxy],
        "check_disk_path": next(iter(folders), "/var/lib/headfirst"),
        # A tenth more for images and logs.
        "check_min_disk_gb": round(sum(weights.values()) * 1.1 / GB, 1),
        "check_address": host.address,
        "check_peers": [peer.address for peer in cluster.hosts if peer.name != host.name],
    }


def _check_rank(
    cluster: Cluster, plan: Plan, ranks: list[tuple[Service, Replica, Node]], host: Host
) -> dict[str, Any]:
    gpus = any(service.device == "cuda" for service, _, _ in ranks)
    peers = {
        peer.address: None for _, replica, _ in ranks for peer in replica.nodes if peer.host != host.name
    }
    settings = [cluster.service(service.name).settings for service, _, _ in ranks]
    devices = next((one for one in plan.devices if one.host == host.name), None)
    network = next((node.network for _, _, node in ranks if node.network.nic), ranks[0][2].network)
    if host in cluster.spares:  # its devices have names of their own
        network = NodeNetwork(nic=host.nic, hca=host.hca, host_ip=host.address, reasons=[])
    return {
        "check_images": list({node.container.image: None for _, _, node in ranks}),
        "check_gpus": host.gpus if gpus else 0,
        "check_min_cuda": max((service.engine_cuda for service, _, _ in ranks), key=_version),
        # The containers have the host's IPC, hence its /dev/shm and not one of this size.
        "check_min_shm_gb": round(sum(_gigabytes(own.shm_size) for own in settings), 1) if gpus else 0,
        "check_roles_to_come": ["host_tuning", *(GPU_ROLES if devices and devices.driver else [])],
        "check_may_reboot": cluster.settings.allow_reboot,
        "check_open_peers": list(peers),
        "check_open_ports": list({replica.dist_port: None for _, replica, _ in ranks}),
        "check_slow_start_args": [word for own in settings for word in _slow_start(own)],
        "check_nic": network.nic or "",
        "check_hca": network.hca or "",
        "check_ib_gid_index": -1 if network.ib_gid_index is None else network.ib_gid_index,
    }


def _slow_start(settings: ServiceSettings) -> list[str]:
    slow = engines.get(settings.engine, settings.engine_version).diagnostics.slow_start_flags
    return [word for word in settings.engine_args if word.partition("=")[0] in slow]


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdecimal())


def _host_tuning(cluster: Cluster, plan: Plan, host: Host) -> dict[str, Any]:
    # A rank that is alone meets nobody there.
    meeting = [one for one in _on(plan, host) if len(one[1].nodes) > 1]
    ports = next((one for one in plan.rank_ports if one.host == host.name), None)
    peers = [peer.address for peer in cluster.hosts if peer.name != host.name]
    return {
        # host_tuning_closed_ports is the user's own.
        "host_tuning_rendezvous_ports": [
            str(port)
            for port in (
                *_rendezvous_ports(meeting),
                *(router.metrics_port for router in _routers_on(plan, host)),
                *exporter_ports(cluster, host),
            )
        ],
        "host_tuning_proxied_ports": closed_ports(plan, host.name),
        "host_tuning_hosts": {node.name: node.address for node in cluster.nodes},
        "host_tuning_peers": list(dict.fromkeys([*peers, *(ports.peers if ports else [])])),
        "host_tuning_ranks_slice": (ports and ports.slice) or "",
        "host_tuning_served_ports": [str(port) for port in ports.served] if ports else [],
    }


def _drivers(cluster: Cluster, plan: Plan, host: Host) -> dict[str, Any]:
    hcas = {device: None for _, _, node in _on(plan, host) for device in rdma.devices(node.network.hca or "")}
    devices = next((one for one in plan.devices if one.host == host.name), None)
    has = (devices.driver, devices.rdma) if devices else (False, False)
    return {
        OWN_GROUPS: [name for name, is_member in zip(DEVICE_GROUPS, has, strict=True) if is_member],
        "nvidia_driver_allow_reboot": cluster.settings.allow_reboot,
        "rdma_devices": list(hcas),
    }


def _gigabytes(size: str) -> float:
    """Docker's notation (32g, 512m) in GB."""
    digits, unit = size.rstrip("kmgKMG"), size[-1].lower()
    return round(float(digits) * {"k": 2**10, "m": 2**20, "g": 2**30}.get(unit, 1) / GB, 1)
