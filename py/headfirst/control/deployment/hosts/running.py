"""What the hosts of rank 0 have of services: their images, and the arguments with which they run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from headfirst.common.errors import HeadfirstError, InputError, NotReadyError
from headfirst.control.deployment.hosts.access import host_access
from headfirst.control.deployment.kept_answers import Images, image_of
from headfirst.control.deployment.lab_nodes import lab_of
from headfirst.control.image_probe import container, kept
from headfirst.control.live.specifications import Present, specifications
from headfirst.control.live.ssh_access.ssh import ssh
from headfirst.control.live.ssh_access.transport import NoEngineError
from headfirst.decide.cluster.types import Cluster, Service


def images(cluster: Cluster, only: Service | None = None) -> Images:
    """Which images are there, of all services or of one; "" where a host lacks it or cannot be asked."""
    services = cluster.services if only is None else (only,)
    found = {service.name: "" for service in services}
    try:
        access = host_access(cluster)
    except NotReadyError:  # the nodes of the lab were never up
        return found
    for service in services:
        head = access[service.hosts[0].name]
        try:
            with ssh(head) as connection:
                id = container.image_id(head, connection, image_of(service))
        except (NotReadyError, InputError):  # no answer, or no SSH login: the run itself reports it
            continue
        found[service.name] = id
        if id:
            kept.see(image_of(service), id)
    return found


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
            if ran := present.get(replica.head.name, {}).get(service.container(replica)):
                yield ran.command

    services = (replace(service, running=tuple(commands(service))) for service in cluster.services)
    return replace(cluster, services=tuple(services))
