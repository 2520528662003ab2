"""Which hosts run a router of each service, and at which ports. A pure function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headfirst.decide.cluster.types import Host, Router, Service


def with_routers(services: Sequence[Service], hosts: Sequence[Host]) -> tuple[Service, ...]:
    """The services with their routers: on each of `hosts`, the group [router].

    Where the group is empty, a service with several replicas has one on the cluster's head.
    """
    head = services[0].replicas[0].head
    taken: set[tuple[str, int]] = set()

    def free(host: Host, port: int) -> int:
        while (host.name, port) in taken:
            port += 1
        taken.add((host.name, port))
        return port

    found = []
    for service in services:
        own = hosts or ([head] if len(service.replicas) > 1 else [])
        routers = tuple(
            Router(
                host,
                port=free(host, service.settings.router_port),
                metrics_port=free(host, service.settings.router_metrics_port),
            )
            for host in own
        )
        found.append(replace(service, routers=routers))
    return tuple(found)
