"""TCP ports of a host: who has each, and the setting that moves it. No two programs may have the same one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from headfirst.common.errors import InputError
from headfirst.decide.cluster.settings import HIGHEST_PORT
from headfirst.decide.cluster.types import Cluster, Host, Service

SSH_PORT = 22
PROXY_METRICS_PORT = 9101


@dataclass(frozen=True)
class PortUse:
    """Ports of one program; `setting` of `service` moves them ("": none does); `where` is its place."""

    name: str
    ports: Sequence[int]
    setting: str
    where: str | None
    service: Service | None = None


def refuse(cluster: Cluster, more: Mapping[str, Sequence[PortUse]] | None = None) -> None:
    """InputError for a port that two programs of a host would have; `more` are those of engines, by host."""
    for host in cluster.hosts:
        uses: dict[int, PortUse] = {}
        for use in (*of_host(cluster, host), *(more or {}).get(host.name, ())):
            for port in use.ports:
                if port > HIGHEST_PORT:
                    raise InputError(
                        f"{use.name} would be {port} on {host.name}, and no port is above {HIGHEST_PORT}",
                        where=use.where,
                        hint=f"Give {use.setting} a lower number.",
                    )
                if port in uses:
                    raise _twice(cluster, host, port, use, uses)
            uses |= dict.fromkeys(use.ports, use)


def of_service(service: Service, name: str, ports: Sequence[int], setting: str, replica: int = 0) -> PortUse:
    """Ports of a service; `replica` is the number of the one that has them."""
    of = f" of {service.name}" if service.name else ""
    number = f" (replica {replica})" if replica else ""
    return PortUse(f"{name}{of}{number}", ports, setting, service.given.get(setting), service)


def _twice(cluster: Cluster, host: Host, port: int, use: PortUse, uses: Mapping[int, PortUse]) -> InputError:
    other = uses[port]
    moved = use if use.setting else other
    near = (*range(port + 150, HIGHEST_PORT, 50), *range(port - 150, 1023, -50))
    free = next(first for first in near if uses.keys().isdisjoint(range(first, first + 8)))
    hint = f"Give {moved.name} a free port" + (
        f", for example {moved.setting}={free}." if moved.setting else "."
    )
    service, other_service = use.service, other.service
    if use.setting == other.setting and service and other_service and service.name == other_service.name:
        hint = (
            "Give its replicas hosts of their own, or make each a service: its settings are for all of them."
        )
    return InputError(
        f"{use.name} and {other.name} have the same port {port} on {host.name}",
        where=use.where or other.where or str(cluster.inventories[0]),
        hint=hint,
    )


def of_host(cluster: Cluster, host: Host) -> Iterator[PortUse]:
    """Those that the inventory gives out on a host."""
    settings, places = cluster.settings, cluster.given

    def of_cluster(name: str, port: int, setting: str | None = None) -> PortUse:
        setting = name if setting is None else setting
        return PortUse(name, [port], setting, places.get(setting))

    yield of_cluster("SSH", host.login.port or SSH_PORT, "ansible_port")
    if host in cluster.nodes:
        if host.weights_port:
            yield of_cluster("weights_port", host.weights_port)
        yield of_cluster("supervisor_port", settings.supervisor_port)
    for service in cluster.services:
        for replica in service.replicas:
            if host is replica.head:
                for name, port in (("dist_port", replica.dist_port), ("engine_port", replica.engine_port)):
                    yield of_service(service, name, [port], name, replica.index)
            if host in replica.hosts and replica.transfer_port:
                name = "kv_transfer_port"
                yield of_service(service, name, [replica.transfer_port], name, replica.index)
        for router in service.routers:
            if host is router.host:
                yield of_service(service, "router_port", [router.port], "router_port")
                name = "router_metrics_port"
                yield of_service(service, name, [router.metrics_port], name)
    if host is cluster.webui:
        yield of_cluster("webui_port", settings.webui_port)
        if cluster.has_proxy:
            yield of_cluster("proxy_port", cluster.proxy_port)
            yield of_cluster("proxy_metrics_port", PROXY_METRICS_PORT, "")
    if host is cluster.monitoring:
        yield of_cluster("prometheus_port", settings.prometheus_port)
        if settings.grafana:
            yield of_cluster("grafana_port", settings.grafana_port)
    if cluster.monitoring and host in cluster.nodes:
        yield of_cluster("node_exporter_port", settings.node_exporter_port)
        yield of_cluster("dcgm_exporter_port", settings.dcgm_exporter_port)
