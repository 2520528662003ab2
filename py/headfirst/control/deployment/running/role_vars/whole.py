"""The plan as variables of the roles, all of a deployment together; an inventory does not set them."""

from __future__ import annotations

from pathlib import Path

from headfirst.common.errors import InputError
from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.running.artifacts import Artifacts, Tarball
from headfirst.control.deployment.running.role_vars import HostVars, merged
from headfirst.control.deployment.running.role_vars.engine import replica_vars, supervisor_vars
from headfirst.control.deployment.running.role_vars.front import proxy_vars, router_vars, webui_vars
from headfirst.control.deployment.running.role_vars.hosts import hardware_vars
from headfirst.control.deployment.running.role_vars.weights import service_vars, tools_vars
from headfirst.decide.cluster.names import setting_of
from headfirst.decide.cluster.settings import SETTING_NAMES
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.plan.types import Plan


def role_vars(cluster: Cluster, plan: Plan, secrets: Secrets, files: Artifacts) -> HostVars:
    """All variables per host. They carry secrets: keep them out of logs and off disks that outlive a run.

    Where a host has several ranks, those of the last one: for its stages take service_vars and replica_vars.
    """
    return merged(
        hardware_vars(cluster, plan),
        tools_vars(cluster, plan, files),
        supervisor_vars(cluster, secrets),
        *(service_vars(cluster, service, secrets, files) for service in plan.services),
        *(
            replica_vars(cluster, service, replica, secrets)
            for service in plan.services
            for replica in service.replicas
        ),
        webui_vars(plan, secrets, files),
        proxy_vars(cluster, plan, secrets, files),
    )


# Only the names of the variables are read, so any files will do.
_FILE = Tarball(Path("-"), on_node=False)


def _any_files(cluster: Cluster) -> Artifacts:
    return Artifacts({service.name: _FILE for service in cluster.services}, _FILE, Path("-"), _FILE)


def refuse_decided(cluster: Cluster, plan: Plan) -> None:
    """InputError for the first variable of the inventory that `role_vars` writes itself."""
    secrets = Secrets().with_keys(service.name for service in cluster.services)
    files = _any_files(cluster)
    written = merged(
        role_vars(cluster, plan, secrets, files),
        *(router_vars(cluster, service, secrets, files) for service in plan.services),
    )
    decided = {name for own in written.values() for name in own} - SETTING_NAMES
    for name in sorted(cluster.given.keys() & decided):
        setting = setting_of(name)
        other = "`deploy plan` shows its value, `deploy variables` the settings that the plan follows."
        raise InputError(
            f"{name} is decided by the plan",
            where=cluster.given[name] or "extra variables (-e)",
            hint=f"Write {setting} instead." if setting else other,
        )
