"""Role variables that the plan decides: in an inventory they would be ignored, so they are refused."""

from __future__ import annotations

from pathlib import Path

from headfirst.common.errors import InputError
from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.running.artifacts import Artifacts, Tarball
from headfirst.control.deployment.running.role_vars.host_vars import merged
from headfirst.control.deployment.running.role_vars.router import router_vars
from headfirst.control.deployment.running.role_vars.whole import role_vars
from headfirst.decide.cluster.names import setting_of
from headfirst.decide.cluster.settings import SETTING_NAMES
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.plan.types import Plan

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
