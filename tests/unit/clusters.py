"""Clusters of one service with one replica, changed for a test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from headfirst.decide.cluster.division import Members, divide
from headfirst.decide.cluster.types import Cluster, Host
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.plan.build import build
from headfirst.decide.plan.types import Node, Plan


def with_hosts(cluster: Cluster, hosts: Sequence[Host]) -> Cluster:
    """The cluster on these hosts, the head first; the head has the chat page."""
    members = Members(None, cluster.services[0].settings, tuple(hosts), None)
    return replace(cluster, services=divide([members]), webui=hosts[0])


def with_settings(cluster: Cluster, **settings: Any) -> Cluster:
    """The cluster with other settings of its service."""
    service = cluster.services[0]
    changed = service.settings.model_copy(update=settings)
    return replace(cluster, services=(replace(service, settings=changed),))


def planned(cluster: Cluster, checkpoint: Checkpoint) -> Plan:
    """The plan of its service."""
    return build(cluster, {cluster.services[0].name: checkpoint})


def nodes(plan: Plan) -> list[Node]:
    """The nodes of its first replica."""
    return plan.services[0].replicas[0].nodes
