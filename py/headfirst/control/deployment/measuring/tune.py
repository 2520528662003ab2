"""`deploy tune`: tries arguments one at a time on the running service, with the same requests each time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from headfirst.common.errors import HeadfirstError, StoppedError
from headfirst.common.state_files import replace_file
from headfirst.control.bench import trial
from headfirst.control.bench.load import Load
from headfirst.control.bench.result import BenchSubject, Point
from headfirst.control.bench.trial import Goal, Judged
from headfirst.control.deployment.measuring import bench
from headfirst.control.deployment.measuring.bench import Workload
from headfirst.control.deployment.measuring.candidates import (
    TuneCandidate,
    changed,
    merged,
    of_advice,
    of_presets,
    refusal,
)
from headfirst.control.deployment.measuring.restored import restored
from headfirst.control.deployment.prepare import Prepared, prepare
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.running.recorded import note_left, timed
from headfirst.control.deployment.verbs.diagnose import tuning
from headfirst.control.deployment.verbs.service import last_start
from headfirst.control.deployment.verbs.up import up
from headfirst.control.inventory.inventory import load
from headfirst.control.paths import state_dir
from headfirst.control.run.reporters.recording import Recording
from headfirst.control.run.reporters.reporter import Reporter
from headfirst.decide.cluster.types import Service
from headfirst.decide.diagnose.types import Advice
from headfirst.decide.frozen import Tolerant

MOST_CANDIDATES = 12
FILE = "tune.json"


class TuneWatcher(bench.BenchWatcher):
    """Follows a run of `deploy tune`."""

    def trying(self, candidate: TuneCandidate | None, number: int, total: int) -> None:
        """The next trial; None: the arguments of the inventory."""

    def judged(self, candidate: TuneCandidate, judgement: Judged) -> None:
        """What came of it."""


@dataclass(frozen=True)
class Wishes:
    """`workload` has one load; `repeats` of it make a trial. `most`: candidates at most."""

    workload: Workload
    goal: Goal
    repeats: int
    most: int = MOST_CANDIDATES


@dataclass(frozen=True)
class Intended:
    """What a run would try. `start_seconds`: how long the last start took, None: not known.

    `left_out`: candidates that the plan refuses, with why.
    """

    prepared: Prepared
    service: Service
    candidates: list[TuneCandidate]
    start_seconds: float | None
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def restarts(self) -> int:
        """One for each candidate and one back, without those that the figures under load add."""
        return len(self.candidates) + 1 if self.candidates else 0


class TuneTrial(Tolerant):
    """One candidate's repeats, and the verdict on them."""

    candidate: TuneCandidate
    points: list[Point]
    judged: Judged


class Tuned(Tolerant):
    """All that was measured. `baseline`: the inventory's arguments, before and after the trials."""

    date: str
    subject: BenchSubject
    goal: Goal
    seed: int
    load: Load
    baseline: list[Point]
    trials: list[TuneTrial]
    left_out: dict[str, str]
    best: int | None  # number of the trial; None: nothing is better than the inventory's arguments

    def best_arguments(self, engine_args: Sequence[str]) -> list[str] | None:
        """engine_args with the best trial's arguments; None: there is nothing to change."""
        return None if self.best is None else merged(engine_args, self.trials[self.best].candidate.arguments)


def intended(options: RunOptions, wishes: Wishes) -> Intended:
    """What would be tried; nothing is sent to the service."""
    cluster = load(options.inventories, options.extra_vars)
    name = (cluster.whole_service(options.service) or cluster.service(None)).name
    prepared = prepare(options.inventories, options.extra_vars, probe=True, service=options.service)
    service = prepared.cluster.service(name)
    candidates, left_out = _accepted(prepared, service, of_presets(prepared, service))
    last = last_start(prepared.cluster, service)
    return Intended(prepared, service, candidates[: wishes.most], last, left_out)


def _accepted(
    prepared: Prepared, service: Service, candidates: Sequence[TuneCandidate]
) -> tuple[list[TuneCandidate], dict[str, str]]:
    refused = {str(candidate): refusal(prepared, service, candidate) for candidate in candidates}
    accepted = [candidate for candidate in candidates if refused[str(candidate)] is None]
    return accepted, {name: why for name, why in refused.items() if why is not None}


def tune(
    options: RunOptions, wishes: Wishes, plan: Intended, watcher: TuneWatcher, reporter: Reporter
) -> tuple[Tuned, Path]:
    """Measure the inventory's arguments, each candidate, and the inventory's again.

    The service ends as it was, also after a failure and Ctrl-C. Returns what was found, and its folder.
    """
    label = f"{bench.workload_label(wishes.workload)} × {wishes.repeats}, {len(plan.candidates)} candidates"
    with timed(plan.prepared.cluster, options, "tune", label) as recording:
        return _Tuning(options, wishes, plan, watcher, reporter, recording).tune()


@dataclass
class _Tuning:
    """One run: trial after trial, each of which is a stage of the recording."""

    options: RunOptions
    wishes: Wishes
    plan: Intended
    watcher: TuneWatcher
    reporter: Reporter
    recording: Recording
    advice: list[Advice] = field(default_factory=list)
    stage: str = ""

    def tune(self) -> tuple[Tuned, Path]:
        begun = datetime.now(UTC)
        wishes, plan = self.wishes, self.plan
        self._begin(None, 0, len(plan.candidates))
        up(self.options, self.reporter)  # nothing is restarted where the service runs as the inventory has it
        subject, base = self._measure(self.options, self._ask_advice)
        more, refused = _accepted(plan.prepared, plan.service, of_advice(self.advice, plan.candidates))
        candidates = [*plan.candidates, *more][: wishes.most]
        trials: list[TuneTrial] = []
        if candidates:
            with restored(self.options, self.reporter):
                for number, candidate in enumerate(candidates, 1):
                    self._begin(candidate, number, len(candidates))
                    points, why = self._try(candidate)
                    judged = _judged(base, points, wishes.goal, why)
                    self.watcher.judged(candidate, judged)
                    trials.append(TuneTrial(candidate=candidate, points=points, judged=judged))
            # Once more: what changed meanwhile beside the arguments is noise.
            self._begin(None, len(candidates), len(candidates))
            base = [*base, *self._measure(self.options)[1]]
            trials = [
                attempt.model_copy(
                    update={"judged": _judged(base, attempt.points, wishes.goal, attempt.judged.why)}
                )
                for attempt in trials
            ]
        self._end()
        tuned = Tuned(
            date=begun.isoformat(timespec="seconds"),
            subject=subject,
            goal=wishes.goal,
            seed=wishes.workload.seed,
            load=wishes.workload.loads[0],
            baseline=base,
            trials=trials,
            left_out={**plan.left_out, **refused},
            best=trial.best([attempt.judged for attempt in trials], wishes.goal),
        )
        folder = state_dir("bench", subject.cluster, f"{begun:%Y%m%d-%H%M%S}-tune")
        replace_file(folder / FILE, tuned.model_dump_json(indent=2) + "\n")
        return tuned, folder

    def _begin(self, candidate: TuneCandidate | None, number: int, total: int) -> None:
        """The trial before ends, and this one begins with the time left."""
        self._end()
        self.stage = "trial" if candidate else "inventory"
        self.watcher.trying(candidate, number, total)
        note_left(self.recording.begin(self.stage).left_seconds, self.watcher.note)

    def _end(self) -> None:
        if self.stage:
            self.recording.end(self.stage)

    def _try(self, candidate: TuneCandidate) -> tuple[list[Point], str]:
        """The candidate's repeats; or none, and why it does not serve."""
        options = changed(self.options, self.plan.service, candidate)
        try:
            up(options, self.reporter)
            return self._measure(options)[1], ""
        except StoppedError:
            raise
        except HeadfirstError as error:  # the role has brought back what served before
            return [], error.what

    def _measure(
        self, options: RunOptions, halfway: Callable[[], None] | None = None
    ) -> tuple[BenchSubject, list[Point]]:
        """The repeats of one trial: each with requests new to the engine, and the same ones in every trial.

        `halfway` is for the first repeat.
        """
        with bench.opened(options, self.wishes.workload, self.watcher) as service:
            load = self.wishes.workload.loads[0]
            first = service.run.measure(load, halfway)
            return service.subject, [
                first,
                *(service.run.measure(load) for _ in range(1, self.wishes.repeats)),
            ]

    def _ask_advice(self) -> None:
        """That of `diagnose --tuning` now, under load. An engine without figures gives none."""
        try:
            self.advice = tuning(self.plan.prepared.cluster, self.plan.service.name).advice or []
        except HeadfirstError as error:
            self.watcher.note(f"No advice from the figures under load: {error.what}.")


def _judged(base: Sequence[Point], points: Sequence[Point], goal: Goal, why: str) -> Judged:
    if why:
        return Judged(verdict="failed", why=why)
    scores = trial.score(base, goal)
    if scores is None:
        raise HeadfirstError(
            "requests failed with the inventory's own arguments, so there is nothing to compare with",
            hint="`deploy bench` shows the errors; a lower --concurrency may have none.",
        )
    return trial.judge(scores, trial.score(points, goal), goal)
