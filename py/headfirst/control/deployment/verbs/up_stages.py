"""The stages of `deploy up`: images are asked once they are there, ranks rehearsed beside the weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headfirst.common.errors import InputError
from headfirst.control.deployment.asked_images import Answered, answered, refuse_changes
from headfirst.control.deployment.prepare import Prepared
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.running.phases import UNTIL_IMAGE, Phase, divided_at
from headfirst.control.deployment.running.stages import starts_ranks
from headfirst.control.deployment.verbs.rehearse import beside, in_up
from headfirst.control.run.reporters.reporter import Reporter
from headfirst.control.run.result import RunResult, StageTime, joined
from headfirst.decide.cluster.types import Service
from headfirst.decide.plan.sizing.alternatives import unfit_hint
from headfirst.decide.plan.types import Plan


@dataclass(frozen=True)
class Stages:
    """The stages of one run. `phases` are those of a cluster and its plan; `run` carries them out."""

    service: Service | None  # the only one that the run brings; None: all
    options: RunOptions
    reporter: Reporter
    phases: Callable[..., list[Phase]]
    run: Callable[..., RunResult]

    def carried_out(self, prepared: Prepared) -> tuple[Prepared, RunResult, list[StageTime]]:
        """What was carried out, with the answers of the images; the times of their questions are apart."""
        if self.options.check or not starts_ranks(self.options.tags):
            phases = self.phases(prepared.cluster, prepared.plan)
            return prepared, self._run(phases, prepared), []
        told = self._answered(prepared)
        prepared = told.prepared
        if not told.missing or not {"image", "host"} & set(self.options.tags or ["image"]):
            return prepared, self._serving(prepared), told.stages
        bringing, _ = self._divided(prepared)
        brought = self._run(bringing, prepared)
        again = self._answered(prepared)
        serving = self._serving(again.prepared, after_image=True)
        return again.prepared, joined([brought, serving]), [*told.stages, *again.stages]

    def _serving(self, prepared: Prepared, *, after_image: bool = False) -> RunResult:
        """All stages, or those after the images."""
        rehearsed = [] if self.options.tags else in_up(prepared, self.service)
        if not rehearsed and not after_image:
            return self._run(self.phases(prepared.cluster, prepared.plan), prepared)
        bringing, rest = self._divided(prepared)
        results = [] if after_image else [self._run(bringing, prepared)]
        if rehearsed:
            weights, rest = divided_at(["weights.yml"], rest)
            with beside(rehearsed, self.reporter) as shown:
                results.append(self._run(weights, prepared, shown))
        return joined([*results, self._run(rest, prepared)])

    def _divided(self, prepared: Prepared) -> tuple[list[Phase], list[Phase]]:
        """The stages that bring images, and those after them."""
        return divided_at(UNTIL_IMAGE, self.phases(prepared.cluster, prepared.plan, divided=True))

    def _run(self, phases: list[Phase], prepared: Prepared, shown: Reporter | None = None) -> RunResult:
        return self.run(phases, cluster=prepared.cluster, reporter=shown or self.reporter)

    def _answered(self, prepared: Prepared) -> Answered:
        """The plan with the answers. InputError where it is another one than was announced."""
        told = answered(prepared, self.reporter, self.service)
        refuse_unfit(brought_by(told.prepared.plan, self.service))
        refuse_changes(told)
        return told


def brought_by(plan: Plan, service: Service | None) -> Plan:
    """The plan with the only service that a run brings; None: all."""
    if service is None:
        return plan
    return plan.model_copy(
        update={"services": [planned for planned in plan.services if planned.name == service.name]}
    )


def refuse_unfit(plan: Plan) -> None:
    """InputError where a service does not fit into the memory of its GPUs."""
    for service in plan.services:
        if service.unfit:
            hint = unfit_hint(service.alternatives, service.unfit_role)
            raise InputError(service.unfit, where=service.name, hint=hint)
