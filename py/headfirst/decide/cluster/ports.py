"""TCP ports that the inventory gives out on a host: no two services may have the same one."""

from __future__ import annotations

from collections.abc import Mapping

from headfirst.decide.cluster.types import Cluster, Host

SSH_PORT = 22
PROXY_METRICS_PORT = 9101


def services(cluster: Cluster, host: Host, role_values: Mapping[str, int]) -> dict[str, range]:
    """Ports of a host by the variable that names them; `role_values` has those of the role weights."""
    found: dict[str, range] = {}
    if host in cluster.nodes:
        found["weights_port"] = _single(role_values["weights_port"])
        found["supervisor_port"] = _single(cluster.settings.supervisor_port)
    for service in cluster.services:
        of = f" of {service.name}" if service.name else ""
        for replica in service.replicas:
            if host is replica.head:
                number = f" (replica {replica.index})" if replica.index else ""
                found[f"dist_port{of}{number}"] = _single(replica.dist_port)
                found[f"engine_port{of}{number}"] = _single(replica.engine_port)
        for router in service.routers:
            if host is router.host:
                found[f"router_port{of}"] = _single(router.port)
                found[f"router_metrics_port{of}"] = _single(router.metrics_port)
    settings = cluster.settings
    if host is cluster.webui:
        found["webui_port"] = _single(settings.webui_port)
        if cluster.has_proxy:
            found["proxy_port"] = _single(cluster.proxy_port)
            found["proxy_metrics_port"] = _single(PROXY_METRICS_PORT)
    if host is cluster.monitoring:
        found["prometheus_port"] = _single(settings.prometheus_port)
        if settings.grafana:
            found["grafana_port"] = _single(settings.grafana_port)
    if cluster.monitoring and host in cluster.nodes:
        found["node_exporter_port"] = _single(settings.node_exporter_port)
        found["dcgm_exporter_port"] = _single(settings.dcgm_exporter_port)
    return found


def clash(ssh_port: int | None, wanted: Mapping[str, range]) -> tuple[str, str, int] | None:
    """The variable whose port is taken, by what, and the port; None where all differ."""
    taken = {ssh_port or SSH_PORT: "SSH"}
    for name, ports in wanted.items():
        for port in ports:
            if port in taken:
                return name, taken[port], port
            taken[port] = name
    return None


def _single(port: int) -> range:
    return range(port, port + 1)
