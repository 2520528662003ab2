"""How long a run still takes, from recorded runs of the same kind. Pure; seconds.

Where nothing alike was recorded there is no estimate. A stage takes the median over the last runs of the
same kind that changed something, or nothing, as this one is expected to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from headfirst.control.run.history import Kind, RunHistory, RunRecord

WEIGHTS = "weights"
_RUNS = 5  # more than these are of an older state of the cluster
# Verbs after which a cluster serves; `down` ends that.
_STOPPING = ("down", "down --data")
_ROTATE = "credentials --rotate"
_SERVING = ("up", "rollback", "replace", "remove", _ROTATE)


class Estimate(NamedTuple):
    """Of the stage that begins, and of the whole run from its begin; None: not known."""

    stage: float | None
    left_seconds: float | None


@dataclass
class TimeLeft:
    """The estimates of one run. `changes`: whether it is expected to change something, None: not compared.

    `weights_seconds`: the plan's own time of each stage that brings weights, in their order.
    """

    history: RunHistory
    kind: Kind
    changes: bool | None = None
    weights: str = ""
    weights_seconds: Sequence[float | None] = ()
    _ended: list[str] = field(default_factory=list)

    def begin(self, stage: str) -> Estimate:
        """A stage begins."""
        number = self._ended.count(stage)
        stages, lefts = [], []
        for run in self._alike():
            places = [place for place, stage_run in enumerate(run.stages) if stage_run.stage == stage]
            if number < len(places):
                stages.append(self._seconds(run, places[number]))
                lefts.append(self._seconds_left(run, places[number]))
        if not stages:
            return Estimate(self._planned(number) if stage == WEIGHTS else None, None)
        return Estimate(median(stages), median(lefts))

    def end(self, stage: str, *, changed: bool) -> None:
        """It was completed."""
        self._ended.append(stage)
        if changed and self.changes is False:
            self.changes = True

    def _alike(self) -> list[RunRecord]:
        """The last runs of this kind."""
        runs = self._of_kind(self.kind)
        if not runs and self.kind.brings:  # another model: the rest goes as in a run that brings none
            without_weights = self.kind.model_copy(update={"brings": False})
            runs = self._of_kind(without_weights) if self._planned(0) is not None else []
        return runs[-_RUNS:]

    def _of_kind(self, kind: Kind) -> list[RunRecord]:
        return [
            run
            for run in self.history.runs
            if run.completed and run.kind == kind and self.changes in (None, run.changed)
        ]

    def _planned(self, number: int) -> float | None:
        if not self.kind.brings or number >= len(self.weights_seconds):
            return None
        return self.weights_seconds[number]

    def _seconds(self, run: RunRecord, place: int) -> float:
        """A stage of a recorded run; of weights that were not brought then, the plan's own time."""
        stage_run = run.stages[place]
        if stage_run.stage != WEIGHTS or not self.kind.brings or run.weights == self.weights:
            return stage_run.seconds
        planned = self._planned(sum(stage.stage == WEIGHTS for stage in run.stages[:place]))
        return stage_run.seconds if planned is None else planned

    def _seconds_left(self, run: RunRecord, place: int) -> float:
        later = range(place, len(run.stages))
        later_seconds = sum(self._seconds(run, number) - run.stages[number].seconds for number in later)
        return max(0.0, run.seconds - run.stages[place].began + later_seconds)


def left_with(history: RunHistory) -> str:
    """What the last run that changes what is served left the cluster with: `up`, `down`, or "": unknown."""
    for run in reversed(history.runs):
        if run.completed and run.kind.verb in (*_SERVING, *_STOPPING) and not _is_part(run):
            return "down" if run.kind.verb in _STOPPING else "up"
    return ""


def is_planned_already(history: RunHistory, containers: str) -> bool:
    """Whether the cluster was last brought to these containers, so that a run changes nothing."""
    for run in reversed(history.runs):
        if run.kind.verb not in (*_SERVING, *_STOPPING) or run.kind.verb == _ROTATE or _is_part(run):
            continue
        if run.changed or (run.completed and run.kind.verb == "up"):
            return run.completed and run.containers == containers
    return False


def _is_part(run: RunRecord) -> bool:
    """Whether -t, -l or --service left out stages, hosts or services."""
    return run.kind.verb in ("up", *_STOPPING) and bool(run.kind.asked)


def was_brought(history: RunHistory, weights: str) -> bool:
    """Whether a run has brought these weights to these hosts."""
    return any(
        run.weights == weights and any(stage.stage == WEIGHTS for stage in run.stages) for run in history.runs
    )
