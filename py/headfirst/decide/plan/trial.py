"""A plan with other settings of the service, made before somebody is advised to write them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headfirst.common.errors import InputError
from headfirst.decide.cluster.division import Members, divide, with_routers
from headfirst.decide.cluster.settings import ServiceSettings
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.plan.build import build
from headfirst.decide.plan.types import Fit


def fit(cluster: Cluster, checkpoint: Checkpoint, settings: Mapping[str, object]) -> Fit:
    """The memory in the plan of these settings for all hosts of the cluster.

    InputError where `deploy plan` refuses them or the model does not fit.
    """
    first = cluster.services[0]
    values = {**first.settings.model_dump(exclude_unset=True), **settings}
    members = Members(None, ServiceSettings.model_validate(values), cluster.ranks, None, first.given)
    services = with_routers(divide([members]), [router.host for router in first.routers])
    memory = build(replace(cluster, services=services), {None: checkpoint}).services[0].fit
    if memory.fits is False:
        raise InputError(memory.reason)
    return memory
