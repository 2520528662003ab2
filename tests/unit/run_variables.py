"""What a whole `deploy up` sets on each host, and what its stages are made of."""

from __future__ import annotations

from pathlib import Path

from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.running.artifacts import Artifacts
from headfirst.control.deployment.running.phases import of_up
from headfirst.control.deployment.running.role_vars import HostVars, Up, merged
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.plan.types import Plan


def up_variables(cluster: Cluster, plan: Plan, secrets: Secrets, files: Artifacts) -> HostVars:
    """The variables of all stages per host; where a host has several ranks, those of the last one."""
    return merged(*(phase.variables for phase in of_up(cluster, plan, secrets, files)))


def up_of(cluster: Cluster, plan: Plan, secrets: Secrets | None = None) -> Up:
    """A run that brings all services, with images from registries."""
    return Up(cluster, plan, secrets or Secrets(), Artifacts(Path("wheel")), plan.services)
