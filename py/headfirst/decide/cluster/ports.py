"""TCP ports that the inventory gives out on a host: no two services may have the same one."""

from __future__ import annotations

from collections.abc import Mapping

from headfirst.decide.cluster.types import Cluster, Host

SSH_PORT = 22
PROXY_METRICS_PORT = 9101


def services(cluster: Cluster, host: Host, role_values: Mapping[str, int]) -> dict[str, range]:
    """Ports of a host by the variable that names them; `role_values` has those of the role weights."""
    ports: dict[str, range] = {}
    if host in cluster.nodes:
        ports["weights_port"] = _single(role_values["weights_port"])
        ports["supervisor_port"] = _single(cluster.settings.supervisor_port)
    for service in cluster.services:
        of = f" of {service.name}" if service.name else ""
        for replica in service.replicas:
            if host is replica.head:
                number = f" (replica {replica.index})" if replica.index else ""
                ports[f"dist_port{of}{number}"] = _single(replica.dist_port)
                ports[f"engine_port{of}{number}"] = _single(replica.engine_port)
            for place in replica.places:
                if host is place.host and replica.transfer_port:
                    # One for each rank there, as vLLM's NixlConnector has them.
                    last = replica.transfer_port + (place.gpus or 1)
                    ports[f"kv_transfer_port{of} (replica {replica.index})"] = range(
                        replica.transfer_port, last
                    )
        for router in service.routers:
            if host is router.host:
                ports[f"router_port{of}"] = _single(router.port)
                ports[f"router_metrics_port{of}"] = _single(router.metrics_port)
    settings = cluster.settings
    if host is cluster.webui:
        ports["webui_port"] = _single(settings.webui_port)
        if cluster.has_proxy:
            ports["proxy_port"] = _single(cluster.proxy_port)
            ports["proxy_metrics_port"] = _single(PROXY_METRICS_PORT)
    if host is cluster.monitoring:
        ports["prometheus_port"] = _single(settings.prometheus_port)
        if settings.grafana:
            ports["grafana_port"] = _single(settings.grafana_port)
    if cluster.monitoring and host in cluster.nodes:
        ports["node_exporter_port"] = _single(settings.node_exporter_port)
        ports["dcgm_exporter_port"] = _single(settings.dcgm_exporter_port)
    return ports


def clash(ssh_port: int | None, ports: Mapping[str, range]) -> tuple[str, str, int] | None:
    """The variable whose port is taken, by what, and the port; None where all differ."""
    taken = {ssh_port or SSH_PORT: "SSH"}
    for name, span in ports.items():
        for port in span:
            if port in taken:
                return name, taken[port], port
            taken[port] = name
    return None


def _single(port: int) -> range:
    return range(port, port + 1)
