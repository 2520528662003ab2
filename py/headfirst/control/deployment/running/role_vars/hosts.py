"""Variables of the roles that prepare a host: check, host_tuning, the drivers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headfirst.control.deployment.running.inventory import DEVICE_GROUPS, HOST_GROUPS
from headfirst.control.deployment.running.role_vars import HostVars, merged
from headfirst.control.deployment.running.role_vars.front import closed_ports
from headfirst.control.deployment.running.role_vars.outbound import outbound_vars
from headfirst.decide.cluster.types import Cluster, Host
from headfirst.decide.engines import nccl
from headfirst.decide.plan.host.requirements import ranks_on, requirements, routers_on
from headfirst.decide.plan.monitoring import exporter_ports, scraped_ports
from headfirst.decide.plan.types import HostDevices, Plan, RankPorts

GPU_ROLES = ("nvidia_driver", "rdma", "nvidia_container_toolkit")


def check_vars(cluster: Cluster, plan: Plan, peers: Sequence[Host] | None = None) -> HostVars:
    """Variables per host for `playbooks/check.yml` alone. `peers`: those that must answer; None: all."""
    answering = cluster.hosts if peers is None else peers
    return {host.name: _check(cluster, plan, host, answering) for host in cluster.hosts}


def hardware_vars(cluster: Cluster, plan: Plan, peers: Sequence[Host] | None = None) -> HostVars:
    """Variables per host for `playbooks/hardware.yml` alone; `peers` as in check_vars."""
    hosts = {
        host.name: _host_tuning(cluster, plan, host) | _drivers(cluster, plan, host)
        for host in (*cluster.nodes, *cluster.router_hosts, *([cluster.webui] if cluster.has_proxy else []))
    }
    return merged(check_vars(cluster, plan, peers), hosts, outbound_vars(cluster))


def _check(cluster: Cluster, plan: Plan, host: Host, peers: Sequence[Host]) -> dict[str, Any]:
    variables = requirements(cluster, plan, host)
    if variables["check_is_rank"]:
        devices, ports = _devices(plan, host), _rank_ports(plan, host)
        variables |= {
            "check_roles_to_come": ["host_tuning", *(GPU_ROLES if devices and devices.driver else [])],
            "check_may_reboot": cluster.settings.allow_reboot,
            "check_closed_ports": ports.closed if ports else [],
            "check_exposed_ports": ports.exposed if ports else [],
        }
    reached = [peer.address for peer in peers if peer.name != host.name]
    return {**variables, "check_address": host.address, "check_peers": reached}


def _host_tuning(cluster: Cluster, plan: Plan, host: Host) -> dict[str, Any]:
    ports = _rank_ports(plan, host)
    peers = [peer.address for peer in cluster.hosts if peer.name != host.name]
    metrics = [router.metrics_port for router in routers_on(plan, host)] + list(exporter_ports(cluster, host))
    proxied = closed_ports(plan, host.name)
    meets = any(len(replica.nodes) > 1 for _, replica, _ in ranks_on(plan, host))
    return {
        # host_tuning_closed_ports is the user's own.
        "host_tuning_rendezvous_ports": [*(ports.closed if ports else ()), *map(str, metrics)],
        "headfirst_proxied_ports": proxied,
        # Where no ranks of several hosts meet, a host that takes no rules is reported, not refused.
        "host_tuning_firewall_optional": not (meets or metrics or proxied or (ports and ports.slice)),
        "host_tuning_monitors": {
            str(network): scraped_ports(cluster, plan.services, plan.proxy, host)
            for network in cluster.settings.monitoring_from
        },
        "host_tuning_hosts": {node.name: node.address for node in cluster.nodes},
        "host_tuning_peers": list(dict.fromkeys([*peers, *(ports.peers if ports else [])])),
        "host_tuning_ranks_slice": (ports and ports.slice) or "",
        "host_tuning_served_ports": [str(port) for port in ports.served] if ports else [],
    }


def _drivers(cluster: Cluster, plan: Plan, host: Host) -> dict[str, Any]:
    used = [node.network.hca or "" for _, _, node in ranks_on(plan, host)]
    hcas = {device: None for hca in used for device in nccl.rdma_devices(hca)}
    devices = _devices(plan, host)
    has = (devices.driver, devices.rdma) if devices else (False, False)
    return {
        HOST_GROUPS: [name for name, is_member in zip(DEVICE_GROUPS, has, strict=True) if is_member],
        "nvidia_driver_allow_reboot": cluster.settings.allow_reboot,
        "rdma_devices": list(hcas),
    }


def _rank_ports(plan: Plan, host: Host) -> RankPorts | None:
    return next((ports for ports in plan.rank_ports if ports.host == host.name), None)


def _devices(plan: Plan, host: Host) -> HostDevices | None:
    return next((devices for devices in plan.devices if devices.host == host.name), None)
