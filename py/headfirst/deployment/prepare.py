"""Inventory to plan: read, describe the model, decide. Changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headfirst.cluster.inventory import load
from headfirst.cluster.types import Cluster
from headfirst.demo import checkpoint_dir
from headfirst.deployment.access import host_access
from headfirst.deployment.decided import refuse_decided
from headfirst.deployment.head_folder import describe_on_head
from headfirst.deployment.lab_nodes import NODE_SHARE, lab_of, share_dir, with_lab_cores
from headfirst.deployment.probe import lacks_facts, probe_hosts
from headfirst.errors import NotReadyError
from headfirst.model import catalogue
from headfirst.model.checkpoint import Checkpoint
from headfirst.model.describe import describe
from headfirst.plan import trust
from headfirst.plan.build import build
from headfirst.plan.types import Plan


@dataclass(frozen=True)
class Prepared:
    """A cluster and what was decided for it."""

    cluster: Cluster
    plan: Plan


def prepare(
    inventories: Sequence[Path],
    extra_vars: Sequence[str],
    *,
    probe: bool,
    rates: bool = False,
    limit: str | None = None,
) -> Prepared:
    """Read the inventory and make the plan; with `probe`, ask the hosts for what the inventory omits.

    `rates`: ask also where only the estimate of the weights' time would gain. A `limit` that leaves no host
    is refused here, before any work.
    """
    cluster = with_lab_cores(load(inventories, extra_vars, limit))
    if probe and (rates or lacks_facts(cluster)):
        cluster = probe_hosts(cluster, extra_vars)
    plan = build(cluster, _describe(cluster, probe=probe))
    refuse_decided(cluster, plan)
    return Prepared(cluster, plan)


def _describe(cluster: Cluster, *, probe: bool) -> Checkpoint:
    """The checkpoint that the inventory names, from its folder, its hub or the catalogue."""
    settings = cluster.settings
    if settings.model_source == "demo":
        return describe(cluster.model_id, "path", folder=checkpoint_dir())
    if settings.model_source == "path":
        return _describe_path(cluster, Path(settings.model), probe=probe)
    return describe(cluster.model_id, settings.model_source, revision=trust.revision(settings))


def _describe_path(cluster: Cluster, folder: Path, *, probe: bool) -> Checkpoint:
    """A folder on the head: seen from here where it is shared, asked over SSH, or known by its name."""
    if lab_of(cluster) and folder.is_relative_to(NODE_SHARE):
        return describe(str(folder), "path", folder=share_dir() / folder.relative_to(NODE_SHARE))
    if folder.is_dir():
        return describe(str(folder), "path")
    if probe:
        return describe_on_head(host_access(cluster)[cluster.head.name], str(folder))
    for id in catalogue.ids():
        if id.rpartition("/")[2] == folder.name:
            note = f"{folder} is on the head; it is taken for {id} by its name (--probe looks at it)"
            found = catalogue.lookup(id, note=note)
            if found is not None:
                return found.model_copy(update={"id": str(folder)})
    raise NotReadyError(
        f"the model folder {folder} is on the head and its name is not in the catalogue",
        hint="Let the plan look at it over SSH: deploy plan --probe.",
    )
