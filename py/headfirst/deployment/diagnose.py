"""`deploy diagnose`: what is wrong with the running service, and where it began. Changes nothing."""

from __future__ import annotations

from headfirst.cluster.types import Cluster
from headfirst.deployment.access import host_access
from headfirst.deployment.claim import known_credentials
from headfirst.diagnose.collect import Target, collect
from headfirst.diagnose.decide import diagnose as decide
from headfirst.diagnose.tuning import Tuning, tune
from headfirst.diagnose.types import Diagnosis, Node
from headfirst.errors import NotReadyError


def diagnose(cluster: Cluster) -> Diagnosis:
    """Where it began. NotReadyError: a host does not answer and the others tell nothing, or nothing runs."""
    nodes = _collect(cluster)
    silent = [node for node in nodes if node.problem]
    if not silent and not any(node.container for node in nodes):
        names = ", ".join(node.host for node in nodes)
        raise NotReadyError("no rank has a container", where=names, hint="`deploy up` starts the service.")
    found = decide(nodes)
    if silent and found.decisive is None:
        one = silent[0]
        hint = f"Try: {host_access(cluster)[one.host].ssh_command('true')}"
        raise NotReadyError(one.problem or "it does not answer", where=one.host, hint=hint)
    return found


def tuning(cluster: Cluster) -> Tuning:
    """Advice from live figures. NotReadyError where the engine gives none."""
    return tune(_collect(cluster))


def _collect(cluster: Cluster) -> list[Node]:
    access, secrets = host_access(cluster), known_credentials(cluster)
    targets = [Target(access[host.name], host.address) for host in cluster.ranks]
    return collect(targets, cluster.engine_url, secrets.values() if secrets else ())
