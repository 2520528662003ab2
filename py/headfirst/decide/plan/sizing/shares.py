"""How several models share the GPUs of a fleet. Pure.

Each gets one copy, and the first as many as then fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headfirst.common.errors import InputError
from headfirst.decide.engines.base import Engine
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.plan.sizing.models import candidate
from headfirst.decide.plan.sizing.sizes import Fleet, copies_on
from headfirst.decide.plan.trial import ServiceTrial


@dataclass(frozen=True)
class Share:
    """The hosts of a service, by their place in the fleet, and its settings."""

    hosts: tuple[int, ...]
    settings: Mapping[str, object]


def shares(
    fleet: Fleet, engine: Engine, checkpoints: Mapping[str, Checkpoint], trial: ServiceTrial
) -> dict[str, Share]:
    """The share of each service, by its name and in this order. InputError where one has no room."""
    free = [fleet.gpus_per_node] * fleet.nodes
    first, *others = checkpoints
    shares: dict[str, Share] = {}
    for name in (*others, first):
        checkpoint = checkpoints[name]
        _, copy = candidate(checkpoint, fleet, engine, trial, {})
        machines, gpus = copy.machines, copy.machines.ranks_per_node or 1
        # The first service takes hosts from the front, and the others from the back.
        hosts = [at for at in range(fleet.nodes) if free[at] >= gpus]
        count = copies_on([free[at] for at in hosts], machines)
        if not count:
            raise InputError(
                f"{checkpoint.id} has no room beside the other models: a copy takes {machines}",
                hint="Name fewer models or more servers, or a smaller model: deploy models INVENTORY.",
            )
        if name != first:
            count, hosts = 1, hosts[-machines.nodes :]
        elif machines.nodes > 1:
            hosts = hosts[: count * machines.nodes]
        for at in hosts:
            free[at] -= gpus
        settings = {"model": checkpoint.id, **copy.settings(count)}
        shares[name] = Share(tuple(hosts), trial.starting(checkpoint, settings, copy.machines)[0])
    return {name: shares[name] for name in checkpoints}
