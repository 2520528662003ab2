"""`deploy test`: the cases of control/smoke on the running service of a cluster. Changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from headfirst.control.deployment.prepare import prepare
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.running.recorded import timed
from headfirst.control.deployment.verbs.service import open_api
from headfirst.control.run.reporters.recording import Recording
from headfirst.control.smoke import runner
from headfirst.control.smoke.api import Api, Parser, ServiceTarget
from headfirst.control.smoke.verdict import Case, CaseResult, SmokeReport
from headfirst.decide import engines
from headfirst.decide.cluster.types import Service
from headfirst.decide.engines.base import ReadinessProbe
from headfirst.decide.engines.presets import DESTINATIONS, Purpose, destination
from headfirst.decide.plan import types as plan
from headfirst.decide.scrub import Scrubber


class SmokeWatcher(runner.CaseWatcher, Protocol):
    """Follows a run of `deploy test`."""

    def time_left(self, seconds: float) -> None:
        """How long the run still takes, by recorded ones."""


def run(
    options: RunOptions, cases: Sequence[Case], watcher: SmokeWatcher, *, timeout_s: float
) -> SmokeReport:
    """Run the cases on what `options.service` names. NotReadyError: it does not answer."""
    prepared = prepare(options.inventories, options.extra_vars, probe=True)
    service, _ = prepared.cluster.chosen(options.service)[0]
    planned = prepared.plan.service(service.name)
    target, readiness = api_target(service, planned)
    passed_on = not planned.paths_outside_v1
    with (
        open_api(prepared.cluster, options.service, routed=passed_on) as (url, key),
        Api(url, key, target, timeout_s) as api,
    ):
        api.require_ready(readiness)
        with timed(prepared.cluster, options, "test", f"{len(cases)} cases") as recording:
            report = runner.run(api, cases, _TimedSmokeWatcher(watcher, recording), Scrubber([key]).text)
    return report.model_copy(update={"capabilities": planned.capabilities})


@dataclass(frozen=True)
class _TimedSmokeWatcher:
    """The watcher; each case begins with the time left, and what it takes is recorded."""

    watcher: SmokeWatcher
    recording: Recording

    def started(self, case: Case) -> None:
        self.watcher.started(case)
        if (seconds_left := self.recording.begin(case.name).left_seconds) is not None:
            self.watcher.time_left(seconds_left)

    def ended(self, result: CaseResult) -> None:
        self.recording.end(result.case)
        self.watcher.ended(result)


def api_target(service: Service, planned: plan.PlannedService) -> tuple[ServiceTarget, ReadinessProbe]:
    """How a service is asked, and how it shows that it is ready."""
    engine = engines.get(planned.engine, planned.engine_version)
    chosen = [word for option in planned.chosen_arguments for word in (option.flag, option.value) if word]
    dialect = engine.request_dialect(engine.check_arguments([*service.settings.engine_args, *chosen]).values)
    capabilities = planned.capabilities
    parsers: dict[Purpose, Parser] = {
        "tools": _parser("tools", capabilities.tools, service, planned),
        "reasoning": _parser("reasoning", capabilities.reasoning, service, planned),
    }
    target = ServiceTarget(planned.served_model_name, planned.task, engine.title, dialect, parsers)
    return target, engine.readiness(planned.task)


def _parser(
    purpose: Purpose, capability: plan.Capability, service: Service, planned: plan.PlannedService
) -> Parser:
    if capability.state != "on":
        unwanted = planned.kept_out or service.settings.parsers == "none"
        return Parser(capability.reason, "Write parsers=auto into the inventory." if unwanted else "")
    chosen, names = planned.chosen_arguments, DESTINATIONS[purpose]
    if flags := [option.flag for option in chosen if destination(option.flag) in names]:
        line = f"Write parsers=none into the inventory, or another parser into engine_args: {flags[0]} NAME."
    else:
        line = f"engine_args sets the parser {capability.reason}: write another one there, or none."
    return Parser("", line)
