"""Variables of roles by host: the form in which each part of the plan reaches Ansible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.running.artifacts import Artifacts
from headfirst.decide.cluster.types import Cluster, Host
from headfirst.decide.plan.types import Plan, PlannedService

HostVars = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Up:
    """What the variables of every stage of `deploy up` are made of."""

    cluster: Cluster
    plan: Plan
    secrets: Secrets
    files: Artifacts
    services: Sequence[PlannedService] = ()  # those that the run brings
    peers: Sequence[Host] | None = None  # hosts that must answer; None: all


def with_sources(variables: HostVars, sources: HostVars) -> HostVars:
    """The variables of each host, with those of `sources` for it."""
    return {host: values | sources.get(host, {}) for host, values in variables.items()}


def merged(*parts: HostVars) -> HostVars:
    """The variables of each host from all parts together."""
    variables: HostVars = {}
    for part in parts:
        for host, values in part.items():
            variables[host] = variables.get(host, {}) | values
    return variables
