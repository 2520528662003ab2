"""Inventory to plan: read, describe the model, decide. Changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headfirst.cluster.inventory import load
from headfirst.cluster.types import Cluster
from headfirst.demo import checkpoint_dir
from headfirst.deployment.probe import probe_hosts
from headfirst.model.checkpoint import Checkpoint
from headfirst.model.describe import describe
from headfirst.plan.build import build
from headfirst.plan.types import Plan


@dataclass(frozen=True)
class Prepared:
    """A cluster and what was decided for it."""

    cluster: Cluster
    plan: Plan


def prepare(inventories: Sequence[Path], extra_vars: Sequence[str], *, probe: bool = False) -> Prepared:
    """Read the inventory and make the plan; with `probe`, ask the hosts for what the inventory omits."""
    cluster = load(inventories, extra_vars)
    if probe:
        cluster = probe_hosts(cluster, extra_vars)
    return Prepared(cluster, build(cluster, describe_model(cluster)))


def describe_model(cluster: Cluster) -> Checkpoint:
    """The checkpoint that the inventory names, from its folder, its hub or the catalogue."""
    settings = cluster.settings
    if settings.model_source == "demo":
        return describe(cluster.model_id, "path", folder=checkpoint_dir())
    return describe(cluster.model_id, settings.model_source, revision=settings.model_revision)
