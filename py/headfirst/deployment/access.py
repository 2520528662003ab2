"""How each host of a cluster is reached over SSH, for what talks to hosts without Ansible."""

from __future__ import annotations

from pathlib import Path

from headfirst.cluster.types import Cluster, Host
from headfirst.deployment.lab_nodes import lab_access, lab_of
from headfirst.lab.types import LabAccess
from headfirst.live.access import HostAccess


def host_access(cluster: Cluster) -> dict[str, HostAccess]:
    """Access by host name. Raises NotReadyError where lab nodes are not up."""
    lab = lab_of(cluster)
    login = lab_access(lab) if lab else None
    return {host.name: _access(host, login) for host in cluster.hosts}


def _access(host: Host, login: LabAccess | None) -> HostAccess:
    if host.lab and login:
        return HostAccess(
            host.name,
            host.login.host,
            login.user,
            host.login.port,
            login.private_key,
            login.known_hosts,
            become=True,
        )
    key = Path(host.login.private_key) if host.login.private_key else None
    known_hosts = Path(host.login.known_hosts) if host.login.known_hosts else None
    return HostAccess(
        host.name,
        host.login.host,
        host.login.user,
        host.login.port,
        key,
        known_hosts,
        become=host.login.user != "root",
    )
