"""The arguments with which services run: read on the hosts of their replicas' rank 0."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from headfirst.common.errors import HeadfirstError, NotReadyError
from headfirst.control.deployment.hosts.access import host_access
from headfirst.control.deployment.lab_nodes import lab_of
from headfirst.control.live.specifications import Present, specifications
from headfirst.control.live.ssh_access.transport import NoEngineError
from headfirst.decide.cluster.types import Cluster, Service


def with_running(cluster: Cluster, names: Collection[str | None]) -> Cluster:
    """The cluster with what runs of the services of these names; containers that ended count.

    Raises the error of a host that the run acts on and that does not answer.
    """
    asked: dict[str, dict[str, str]] = {}
    for service in cluster.services:
        for replica in service.replicas if service.name in names else ():
            asked.setdefault(replica.head.name, {})[service.container(replica)] = ""
    try:
        answers = specifications([*host_access(cluster).values()], asked)
    except NotReadyError:  # the nodes of the lab were never up
        return cluster
    acting = {host.name for host in cluster.limited_hosts}
    present: dict[str, Mapping[str, Present]] = {}
    for host, answer in answers.items():
        if not isinstance(answer, HeadfirstError):
            present[host] = answer
        # Before the first run there are hosts without Docker, and labs without nodes.
        elif not isinstance(answer, NoEngineError) and not lab_of(cluster) and host in acting:
            raise answer

    def commands(service: Service) -> Iterator[tuple[str, ...]]:
        for replica in service.replicas:
            if container := present.get(replica.head.name, {}).get(service.container(replica)):
                yield container.command

    services = (replace(service, running=tuple(commands(service))) for service in cluster.services)
    return replace(cluster, services=tuple(services))
