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
        return _tune(options, wishes, plan, _TimedTuneWatcher(watcher, recording), reporter)


def _tune(
    options: RunOptions, wishes: Wishes, plan: Intended, watcher: _TimedTuneWatcher, reporter: Reporter
) -> tuple[Tuned, Path]:
    begun = datetime.now(UTC)
    watcher.trying(None, 0, len(plan.candidates))
    up(options, reporter)  # nothing is restarted where the service runs as the inventory has it
    advice: list[Advice] = []
    subject, base = _measure(options, wishes, _Half(watcher, lambda: advice.extend(_advice(plan, watcher))))
    more, refused = _accepted(plan.prepared, plan.service, of_advice(advice, plan.candidates))
    candidates = [*plan.candidates, *more][: wishes.most]
    trials: list[TuneTrial] = []
    if candidates:
        with restored(options, reporter):
            for number, candidate in enumerate(candidates, 1):
                watcher.trying(candidate, number, len(candidates))
                points, why = _try(options, wishes, plan, candidate, watcher, reporter)
                judged = _judged(base, points, wishes.goal, why)
                watcher.judged(candidate, judged)
                trials.append(TuneTrial(candidate=candidate, points=points, judged=judged))
        # Once more: what changed meanwhile beside the arguments is noise.
        watcher.trying(None, len(candidates), len(candidates))
        base = [*base, *_measure(options, wishes, watcher)[1]]
        trials = [
            attempt.model_copy(
                update={"judged": _judged(base, attempt.points, wishes.goal, attempt.judged.why)}
            )
            for attempt in trials
        ]
    watcher.end()
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


def _try(
    options: RunOptions,
    wishes: Wishes,
    plan: Intended,
    candidate: TuneCandidate,
    watcher: TuneWatcher,
    reporter: Reporter,
) -> tuple[list[Point], str]:
    """The candidate's repeats; or none, and why it does not serve."""
    trial_options = changed(options, plan.service, candidate)
    try:
        up(trial_options, reporter)
        return _measure(trial_options, wishes, watcher)[1], ""
    except StoppedError:
        raise
    except HeadfirstError as error:  # the role has brought back what served before
        return [], error.what


def _measure(
    options: RunOptions, wishes: Wishes, watcher: bench.BenchWatcher
) -> tuple[BenchSubject, list[Point]]:
    """The repeats of one trial: each with requests new to the engine, and the same ones in every trial."""
    with bench.opened(options, wishes.workload, watcher) as service:
        load = wishes.workload.loads[0]
        return service.subject, [service.run.measure(load) for _ in range(wishes.repeats)]


def _advice(plan: Intended, watcher: TuneWatcher) -> list[Advice]:
    """That of `diagnose --tuning` now, under load. An engine without figures gives none."""
    try:
        return tuning(plan.prepared.cluster, plan.service.name).advice or []
    except HeadfirstError as error:
        watcher.note(f"No advice from the figures under load: {error.what}.")
        return []


class _TimedTuneWatcher(TuneWatcher):
    """The watcher; each trial begins with the time left, and what it takes is recorded."""

    def __init__(self, watcher: TuneWatcher, recording: Recording) -> None:
        self._watcher = watcher
        self._recording = recording
        self._stage = ""

    def trying(self, candidate: TuneCandidate | None, number: int, total: int) -> None:
        """As the watcher; the trial before ends."""
        self.end()
        self._stage = "inventory" if candidate is None else "trial"
        self._watcher.trying(candidate, number, total)
        note_left(self._recording.begin(self._stage).left_seconds, self.note)

    def end(self) -> None:
        """The last trial ends."""
        if self._stage:
            self._recording.end(self._stage)

    def judged(self, candidate: TuneCandidate, judgement: Judged) -> None:
        self._watcher.judged(candidate, judgement)

    def note(self, text: str) -> None:
        self._watcher.note(text)

    def started(self, load: Load, requests: int) -> None:
        self._watcher.started(load, requests)

    def progress(self, done: int, seconds: float) -> None:
        self._watcher.progress(done, seconds)

    def ended(self, measured: Point) -> None:
        self._watcher.ended(measured)


class _Half(bench.BenchWatcher):
    """The watcher; calls `halfway` once, when half of the first load's requests have ended."""

    def __init__(self, watcher: TuneWatcher, halfway: Callable[[], None]) -> None:
        self._watcher = watcher
        self._halfway: Callable[[], None] | None = halfway
        self._half = 0

    def note(self, text: str) -> None:
        self._watcher.note(text)

    def started(self, load: Load, requests: int) -> None:
        self._half = requests // 2
        self._watcher.started(load, requests)

    def progress(self, done: int, seconds: float) -> None:
        """As the watcher; the load goes on meanwhile."""
        self._watcher.progress(done, seconds)
        if self._halfway is not None and done >= self._half:
            halfway, self._halfway = self._halfway, None
            halfway()

    def ended(self, measured: Point) -> None:
        self._watcher.ended(measured)
