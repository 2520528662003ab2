"""How long a service takes to start, as the supervisor of its head has seen it."""

from __future__ import annotations

from headfirst.common.errors import HeadfirstError
from headfirst.control.deployment.hosts.access import host_access
from headfirst.control.live.ssh_access.ssh import ssh
from headfirst.control.live.supervision import supervision
from headfirst.decide.cluster.types import Cluster, Service


def last_start(cluster: Cluster, service: Service) -> float | None:
    """Seconds of the last start of all its replicas, one after the other; None: not known."""
    replica = service.replicas[0]
    try:
        with ssh(host_access(cluster)[replica.head.name]) as client:
            found = supervision(client).get(service.container(replica))
    except HeadfirstError:  # the head does not answer
        return None
    return found.start_seconds * len(service.replicas) if found and found.start_seconds else None
