"""Folders of weights on the hosts: what they hold, and services that would keep different contents in one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headfirst.common.errors import InputError
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.plan.types import DraftModel, HostDisk, PlannedService

Content = tuple[str, str, str | None]
"""Source, ID and revision."""


def refuse(cluster: Cluster, services: Sequence[PlannedService]) -> None:
    """Raise for the first such folder: what is brought later would replace what a rank loads."""
    contents: dict[tuple[str, str], tuple[str | None, Content]] = {}
    for service in services:
        configured = cluster.service(service.name)
        for setting, directory, content in _contents(service):
            for host in (*configured.hosts, *cluster.spares):
                other, earlier = contents.setdefault((host.name, directory), (service.name, content))
                if earlier != content:
                    folder = f"{configured.settings.weights_dir.rstrip('/')}/{service.name}"
                    raise InputError(
                        f"{host.name} would keep {_text(earlier)} of service {other} and {_text(content)} of "
                        f"service {service.name} in one folder, {directory}",
                        where=configured.given.get(setting),
                        hint=f"Give service {service.name} a folder of its own: weights_dir={folder}",
                    )


def _contents(service: PlannedService) -> Iterator[tuple[str, str, Content]]:
    """Of each folder: the setting that names its content, its path, and the content."""
    weights = service.weights
    yield "model", weights.directory, (weights.source, weights.model, weights.revision)
    for each in service.companions:
        setting = "draft_model" if isinstance(each, DraftModel) else "adapters"
        yield setting, each.directory, (each.source, each.id, each.revision)


def _text(content: Content) -> str:
    _, id, revision = content
    return f"{id} at {revision}" if revision else id


def disks(cluster: Cluster, services: Sequence[PlannedService]) -> list[HostDisk]:
    """What each host with weights stores at most; replicas of one service share them."""
    planned = []
    for host in cluster.nodes:
        stored = [
            service for service in services if host.name in {each.host for each in service.weights.members}
        ]
        sizes = {service.weights.directory: service.weights.disk_bytes for service in stored}
        sizes |= {each.directory: each.disk_bytes for service in stored for each in service.companions}
        size = sum(sizes.values()) * 11 // 10  # a tenth more for images and logs
        for service in stored[:1]:
            path = cluster.service(service.name).settings.weights_dir
            planned.append(HostDisk(host=host.name, path=path, bytes=size))
    return planned
