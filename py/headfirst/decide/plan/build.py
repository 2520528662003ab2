"""Cluster + checkpoints to Plan. A pure function: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Mapping

from headfirst.common.errors import located
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.containers import blanks
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.plan import contents, images, judgement, kept, monitoring, unused
from headfirst.decide.plan.front import proxy, webui
from headfirst.decide.plan.host import devices, memory, outbound, ports, rank_ports
from headfirst.decide.plan.sizing.alternatives import advised
from headfirst.decide.plan.trial import ServiceTrial
from headfirst.decide.plan.types import Plan
from headfirst.decide.plan.weights import folders


def build(cluster: Cluster, checkpoints: Mapping[str | None, Checkpoint]) -> Plan:
    """Decide everything that `deploy up` carries out; `checkpoints` are by the name of their service.

    Raises InputError for what cannot work.
    """
    with located(str(cluster.inventories[0])):
        return _build(cluster, checkpoints)


def _build(cluster: Cluster, checkpoints: Mapping[str | None, Checkpoint]) -> Plan:
    services = [
        advised(
            kept.plan(cluster, service, checkpoint),
            contents.with_packages(service, checkpoint),
            ServiceTrial.of(cluster, at),
        )
        for at, service in enumerate(cluster.services)
        for checkpoint in [checkpoints[service.name]]
    ]
    memory.refuse(cluster, services)
    folders.refuse(cluster, services)
    ports.refuse(cluster, services)
    chats = [(url, chat.name) for chat in webui.chats(services) for url in chat.urls]
    keys = [blanks.api_key(name) for _, name in chats]
    page = webui.plan(cluster, [url for url, _ in chats], keys) if chats else None
    front = proxy.plan(cluster, services, page) if cluster.has_proxy else None
    spares = [host.name for host in cluster.spares]
    watch = monitoring.plan(cluster)
    return Plan(
        cluster=cluster.name,
        verdict=judgement.verdict(services),
        services=services,
        webui=page,
        rank_ports=rank_ports.plan(cluster, services, front),
        devices=devices.plan(cluster),
        disks=folders.disks(cluster, services),
        spares=spares,
        monitoring=watch,
        proxy=front,
        outbound=[*filter(None, (outbound.of_host(cluster, host) for host in cluster.hosts))],
        container_runtime=cluster.settings.container_runtime,
        notes=[
            *cluster.notes,
            *images.notes(cluster),
            *outbound.notes(cluster),
            *(webui.notes(cluster) if page else []),
            *unused.notes(cluster, chats=page is not None),
        ],
    )
