"""Follows a run: adds the time left to its stages, and keeps what it took for the next ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from headfirst import __version__
from headfirst.control.run.events import Event, Finding, FindingsReported, StageDone, StageStarted
from headfirst.control.run.history import RunRecord, StageRun, add_run
from headfirst.control.run.reporters.reporter import Reporter
from headfirst.control.run.time_left import Estimate, TimeLeft
from headfirst.decide.diagnose.measured import Measured
from headfirst.decide.plan.types import Capabilities


@dataclass
class Recording:
    """One run of a verb; `begin` and `end` are called around each of its stages."""

    folder: Path
    time_left: TimeLeft
    clock: Callable[[], float] = time.monotonic
    containers: str = ""
    findings: list[Finding] | None = None
    comm: dict[str, Any] | None = None
    capabilities: dict[str, Capabilities] = field(default_factory=dict)
    measured: dict[str, Measured] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._at = datetime.now(UTC).isoformat(timespec="seconds")
        self._since, self._began = self.clock(), 0.0
        self._stages: list[StageRun] = []

    def begin(self, stage: str) -> Estimate:
        """A stage begins; what is known of its length and of the time left."""
        self._began = self.clock() - self._since
        return self.time_left.begin(stage)

    def end(self, stage: str, changed: int = 0) -> None:
        """It was completed."""
        seconds = self.clock() - self._since - self._began
        self._stages.append(StageRun(stage=stage, began=self._began, seconds=seconds, changed=changed))
        self.time_left.end(stage, changed=changed > 0)

    def save(self, *, completed: bool) -> None:
        """Add the run to the history. OSError: it cannot be written."""
        add_run(
            self.folder,
            RunRecord(
                at=self._at,
                headfirst=__version__,
                kind=self.time_left.kind,
                seconds=self.clock() - self._since,
                completed=completed,
                containers=self.containers,
                weights=self.time_left.weights,
                stages=self._stages,
                findings=self.findings,
                comm=self.comm,
                capabilities=self.capabilities,
                measured=self.measured,
            ),
        )


class RecordingReporter(Reporter):
    """Passes events on to a reporter; stages begin with their estimate."""

    def __init__(self, reporter: Reporter, recording: Recording) -> None:
        self._reporter = reporter
        self.recording = recording

    def __enter__(self) -> Self:
        self._reporter.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._reporter.__exit__(*error)

    def handle(self, event: Event) -> None:
        """Note the stages and findings of the run, and pass the event on."""
        match event:
            case StageStarted():
                estimate = self.recording.begin(event.stage)
                event = replace(event, expected_seconds=estimate.stage, left_seconds=estimate.left_seconds)
            case StageDone(completed=True, failed_hosts=()):
                self.recording.end(event.stage, event.changed)
                if event.stage == "check" and self.recording.findings is None:
                    self.recording.findings = []
            case FindingsReported(stage="check"):
                self.recording.findings = [*(self.recording.findings or []), *event.findings]
        self._reporter.handle(event)

    def tick(self) -> None:
        """As the reporter."""
        self._reporter.tick()
