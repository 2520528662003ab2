"""Which containers each host of the plan runs, in the order in which they start."""

from __future__ import annotations

from dataclasses import dataclass

from headfirst.decide.containers.spec import Container
from headfirst.decide.plan.types import Plan, Replica, Service
from headfirst.decide.render.secret_files import SecretFile, of_env_file, of_replica


@dataclass(frozen=True)
class Rank:
    """Whose rank a container is."""

    service: Service
    replica: Replica
    number: int


@dataclass(frozen=True)
class Part:
    """One container on a host, what it is, and the file with secrets that it reads."""

    container: Container
    what: str
    secret: SecretFile | None
    rank: Rank | None = None


@dataclass(frozen=True)
class HostParts:
    """A host and its containers: ranks, routers, the chat page."""

    name: str
    address: str
    parts: list[Part]


def hosts(plan: Plan) -> list[HostParts]:
    """All hosts, heads before their workers."""
    found: dict[str, HostParts] = {}

    def add(host: str, address: str, part: Part) -> None:
        found.setdefault(host, HostParts(host, address, [])).parts.append(part)

    for service in plan.services:
        for replica in service.replicas:
            for node in replica.nodes:
                secret = of_replica(service, replica)
                what = f"rank {node.rank} of {len(replica.nodes)} of {service.served_model_name}"
                reads = any(volume.startswith(f"{secret.path}:") for volume in node.container.volumes)
                rank = Rank(service, replica, node.rank)
                add(node.host, node.address, Part(node.container, what, secret if reads else None, rank))
    for service in plan.services:
        for router in service.routers:
            # No supervisor registers the replicas here.
            command = [*router.container.command, *router.fixed_replicas]
            container = router.container.model_copy(update={"command": command})
            what = f"the router of {service.served_model_name} at {router.url}"
            add(router.host, router.address, Part(container, what, of_env_file(router)))
    if plan.webui:
        what = f"the chat page at {plan.webui.url}"
        add(plan.webui.host, plan.webui.address, Part(plan.webui.container, what, of_env_file(plan.webui)))
    return list(found.values())


def secrets(on: list[HostParts]) -> list[SecretFile]:
    """The files with secrets of these hosts."""
    return [part.secret for host in on for part in host.parts if part.secret]
