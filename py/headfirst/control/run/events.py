"""What happens in a run, as small typed values. Reporters and the record of the run read these.

Times are seconds. `stage` is the part of a play's name before the bar (see translate.py); `host` is the
inventory's name of a host. docs/json-events.md documents them as JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a check found on a host. `severity` is `error`, `warning` or `note`."""

    id: str
    severity: str
    host: str
    what: str
    why: str = ""
    fix: str = ""

    @property
    def text(self) -> str:
        """What was found, why it matters and what to do, each a sentence where there are several."""
        parts = [part.rstrip(".") for part in (self.what, self.why) if part]
        return f"{'. '.join(parts)}. {self.fix}" if self.why or self.fix else self.what


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The run begins; Ansible's own output goes to `log_file`."""

    playbook: str
    log_file: str


@dataclass(frozen=True, slots=True)
class StageStarted:
    """The first task of a stage is about to run. `title` is the text of its first play.

    By recorded runs of the same kind the stage takes `expected_seconds`, and the command `left_seconds` from
    here to its end; None where nothing alike was recorded.
    """

    stage: str
    title: str
    expected_seconds: float | None = None
    left_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class TaskStarted:
    """A host begins a task."""

    stage: str
    host: str
    task: str


@dataclass(frozen=True, slots=True)
class Progress:
    """How far long work on a host is.

    `unit` is `bytes`, `files`, `layers` …; `total` 0 means unknown; `rate` is units per second and `eta`
    seconds left, both None while they are unknown.
    """

    stage: str
    host: str
    what: str
    done: int
    total: int
    unit: str
    note: str
    rate: float | None
    eta: float | None


@dataclass(frozen=True, slots=True)
class TaskDone:
    """A host ended a task without failing (skipped counts: `changed` is false)."""

    stage: str
    host: str
    task: str
    changed: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class FindingsReported:
    """The checks of a host ended with these findings; warnings alone do not stop the run."""

    stage: str
    host: str
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class HostFailed:
    """A task failed on a host, or the host did not answer. `result` is the module's own result.

    A playbook may rescue the failure: the host then goes on with a next TaskStarted.
    """

    stage: str
    host: str
    task: str
    message: str
    unreachable: bool
    result: dict[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class StageDone:
    """A stage ended. `changed` counts changed tasks over all hosts; `completed`: it was not broken off."""

    stage: str
    seconds: float
    changed: int
    failed_hosts: tuple[str, ...]
    completed: bool = True


@dataclass(frozen=True, slots=True)
class RunDone:
    """The run ended. `changed` counts changed tasks per host."""

    ok: bool
    cancelled: bool
    seconds: float
    changed: dict[str, int]
    failed_hosts: tuple[str, ...]
    log_file: str


Event = (
    RunStarted
    | StageStarted
    | TaskStarted
    | Progress
    | TaskDone
    | FindingsReported
    | HostFailed
    | StageDone
    | RunDone
)
