"""TCP ports that the inventory gives out on a host: no two services may have the same one."""

from __future__ import annotations

from collections.abc import Mapping

from headfirst.cluster.types import Cluster, Host

SSH_PORT = 22


def services(cluster: Cluster, host: Host, role_values: Mapping[str, int]) -> dict[str, range]:
    """Ports of a host by the variable that names them; `role_values` has those of the role weights."""
    settings, found = cluster.settings, {}
    if host in cluster.ranks:
        first = role_values["weights_port"]
        # The data goes over the ports after the first.
        found["weights_port"] = range(first, first + role_values["weights_sessions"] + 1)
    if host is cluster.head:
        found["dist_port"] = _single(settings.dist_port)
        found["engine_port"] = _single(settings.engine_port)
    if host is cluster.webui:
        found["webui_port"] = _single(settings.webui_port)
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
