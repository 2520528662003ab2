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


def refusal(cluster: Cluster, checkpoint: Checkpoint, settings: Mapping[str, object]) -> str | None:
    """Why `deploy plan` refuses these settings for all hosts of the cluster; None where it does not."""
    first = cluster.services[0]
    values = {**first.settings.model_dump(exclude_unset=True), **settings}
    members = Members(None, ServiceSettings.model_validate(values), cluster.ranks, None, first.given)
    try:
        services = with_routers(divide([members]), [router.host for router in first.routers])
        plan = build(replace(cluster, services=services), {None: checkpoint})
    except InputError as error:
        return error.what
    fit = plan.services[0].fit
    return fit.reason if fit.fits is False else None
