"""Clusters as a test writes them, those of one service with one replica changed, and their plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headfirst.control.inventory.inventory import load
from headfirst.decide.cluster.division import Members, divide
from headfirst.decide.cluster.types import Cluster, Host
from headfirst.decide.model import catalogue
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.plan.build import build
from headfirst.decide.plan.types import Node, Plan


def read(folder: Path, text: str) -> Cluster:
    """The cluster of an inventory that is written into the folder."""
    path = folder / "cluster.ini"
    path.write_text(text, encoding="utf-8")
    return load([path])


def with_hosts(cluster: Cluster, hosts: Sequence[Host]) -> Cluster:
    """The cluster on these hosts, the head first; the head has the chat page."""
    members = Members(None, cluster.services[0].settings, tuple(hosts), None)
    return replace(cluster, services=divide([members]), webui=hosts[0])


def on(cluster: Cluster, gpus: str, **facts: Any) -> Cluster:
    """The cluster on GPUs of hosts that are alike, such as `2 x 8 x H100-80G`: two with eight each."""
    *hosts, each, gpu = gpus.split(" x ")
    first = replace(cluster.hosts[0], gpus=int(each), gpu=gpu, **facts)
    count = int(hosts[0]) if hosts else 1
    return with_hosts(
        cluster, [replace(first, name=f"n{rank}", address=f"192.0.2.{rank + 1}") for rank in range(count)]
    )


def with_settings(cluster: Cluster, **settings: Any) -> Cluster:
    """The cluster with other settings of its service."""
    service = cluster.services[0]
    changed = service.settings.model_copy(update=settings)
    return replace(cluster, services=(replace(service, settings=changed),))


def planned(cluster: Cluster, checkpoint: Checkpoint) -> Plan:
    """The plan of its service."""
    return build(cluster, {cluster.services[0].name: checkpoint})


def catalogued(cluster: Cluster) -> Plan:
    """The plan of its services, whose models the catalogue has."""
    found = {service.name: catalogue.lookup(service.model_id) for service in cluster.services}
    return build(cluster, {name: model for name, model in found.items() if model})


def nodes(plan: Plan) -> list[Node]:
    """The nodes of its first replica."""
    return plan.services[0].replicas[0].nodes
