"""Role variables that the plan decides: in an inventory they would be ignored, so they are refused."""

from __future__ import annotations

from pathlib import Path

from headfirst.cluster.names import setting_of
from headfirst.cluster.secrets import Secrets
from headfirst.cluster.settings import CLUSTER_NAMES, HOST_NAMES
from headfirst.cluster.types import Cluster
from headfirst.deployment.artifacts import Artifacts, Tarball
from headfirst.deployment.role_vars import role_vars
from headfirst.errors import InputError
from headfirst.plan.types import Plan

# Only the names of the variables are read, so any files will do.
_FILE = Tarball(Path("-"), on_node=False)


def refuse_decided(cluster: Cluster, plan: Plan) -> None:
    """InputError for the first variable of the inventory that `role_vars` writes itself."""
    written = role_vars(cluster, plan, Secrets(), Artifacts(_FILE, _FILE, Path("-")))
    decided = {name for own in written.values() for name in own} - CLUSTER_NAMES - HOST_NAMES
    for name in sorted(cluster.given.keys() & decided):
        setting = setting_of(name)
        other = "`deploy plan` shows its value, `deploy variables` the settings that the plan follows."
        raise InputError(
            f"{name} is decided by the plan",
            where=cluster.given[name] or "extra variables (-e)",
            hint=f"Write {setting} instead." if setting else other,
        )
