"""A service that runs keeps its arguments where a default alone would change them. Pure.

One that runs without parsers gets them when `parsers` or a preset is written, or with another model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headfirst.decide.cluster.settings import ServiceSettings
from headfirst.decide.cluster.types import Cluster, Service
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.plan import service as fresh
from headfirst.decide.plan.types import Capability, ChosenArgument, PlannedService


def depends_on_running(cluster: Cluster, planned: PlannedService) -> bool:
    """Whether arguments may have been chosen by default alone."""
    return _is_open(cluster.service(planned.name).settings) and any(_chosen(planned))


def plan(cluster: Cluster, service: Service, checkpoint: Checkpoint) -> PlannedService:
    """The plan of a service, without parsers where it runs without them. InputError: it cannot work."""
    planned = fresh.plan(cluster, service, checkpoint)
    # Containers that serve another model are no reason to keep anything.
    running = [argv for argv in service.running if planned.weights.directory in argv]
    if not running or not _is_open(service.settings):
        return planned
    settings = service.settings.model_copy(update={"parsers": "none"})
    without = fresh.plan(cluster, replace(service, settings=settings), checkpoint)
    kept_out = [argument for argument in _chosen(planned) if argument not in [*_chosen(without)]]
    flags = {argument.flag for argument in kept_out}
    if not flags or any(flags & set(argv) for argv in running):
        return planned
    auto, none = planned.capabilities, without.capabilities
    kept = {"tools": _kept(auto.tools, none.tools), "reasoning": _kept(auto.reasoning, none.reasoning)}
    return without.model_copy(update={"capabilities": auto.model_copy(update=kept), "kept_out": kept_out})


def _is_open(settings: ServiceSettings) -> bool:
    return settings.parsers is None and settings.preset is None


def _chosen(planned: PlannedService) -> Iterator[ChosenArgument]:
    return (argument for sized, _ in planned.pools for argument in sized.chosen_arguments)


def _kept(auto: Capability, none: Capability) -> Capability:
    """The capability without the parser that the default would choose."""
    if auto.state != "on" or none.state == "on":
        return auto
    why = f"the service keeps its present arguments; parsers=auto adds the parser {auto.reason}"
    return Capability(state="off", reason=why)
