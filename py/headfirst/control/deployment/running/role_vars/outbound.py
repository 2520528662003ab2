"""Proxies of the hosts as variables of roles and plays: apt, pip and keys, and the container runtime."""

from __future__ import annotations

from typing import Any

from headfirst.control.deployment.running.role_vars import HostVars
from headfirst.decide.cluster.types import Cluster, Host
from headfirst.decide.plan.host import outbound

FOLDER = "/etc/headfirst/outbound"  # for root alone; `deploy down` removes it


def outbound_vars(cluster: Cluster) -> HostVars:
    """Variables of each host that has a proxy."""
    return {host.name: _host(cluster, host) for host in cluster.hosts if host.outbound}


def _host(cluster: Cluster, host: Host) -> dict[str, Any]:
    runtime = f"{cluster.settings.container_runtime}_engine"
    environment = outbound.variables(cluster, host)
    secret = outbound.secret_variables(cluster, host)
    # Ansible writes the environment of a task into an argument list: what is secret goes into files instead.
    paths = {"APT_CONFIG": f"{FOLDER}/apt.conf", "HEADFIRST_ENVIRONMENT_FILE": f"{FOLDER}/environment"}
    apt = [f'Acquire::{name.removesuffix("_proxy")}::Proxy "{url}";\n' for name, url in secret.items()]
    variables = [f"{name}={url}\n" for name, url in secret.items()]
    files = {"apt.conf": "".join(apt), "environment": "".join(variables)}
    every = environment | secret
    return {
        "headfirst_environment": environment | (paths if secret else {}),
        "headfirst_outbound_files": files if secret else {},
        f"{runtime}_http_proxy": every.get("http_proxy", ""),
        f"{runtime}_https_proxy": every["https_proxy"],
        f"{runtime}_no_proxy": every["no_proxy"],
    }
