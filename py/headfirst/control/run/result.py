"""The outcome of a run: what failed, what changed, where the time went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from headfirst.control.run import events
from headfirst.control.run.events import Event, Finding, HostFailed


class StageTime(NamedTuple):
    """How long a stage took."""

    stage: str
    seconds: float


@dataclass(frozen=True)
class RunResult:
    """What `run_playbook` returns. It never holds one of the secrets handed to it.

    `ok` is false after a failure and after a cancel. `failed` and `unreachable` keep the order in which
    hosts failed; rescued failures are not in them. `changed` counts changed tasks per host. `stages` keeps
    the order of the run. `stats` is what plays published with `ansible.builtin.set_stats`. `silent` are
    hosts that did not answer a task which ignores that, as our checks do to report all hosts at once.
    `ansible_error` is what ansible-playbook itself complained about when no task failed (a broken
    playbook, a pattern that matches no host).
    """

    ok: bool
    cancelled: bool
    changed: dict[str, int]
    failed: list[HostFailed]
    unreachable: list[HostFailed]
    findings: list[Finding]
    stages: list[StageTime]
    seconds: float
    log_file: Path
    silent: list[HostFailed] = field(default_factory=list)
    stats: dict[str, Any] = field(default_factory=dict)
    ansible_error: str | None = None

    @property
    def changed_total(self) -> int:
        """Changed tasks over all hosts; 0 means that everything was as planned."""
        return sum(self.changed.values())


def joined(results: Sequence[RunResult]) -> RunResult:
    """Runs that ended well, one after the other, as one. Of stats with one key the last one's stay."""
    changed: Counter[str] = Counter()
    seconds: dict[str, float] = {}
    for result in results:
        changed.update(result.changed)
        for stage in result.stages:
            seconds[stage.stage] = seconds.get(stage.stage, 0.0) + stage.seconds
    return replace(
        results[-1],
        changed=dict(changed),
        findings=[finding for result in results for finding in result.findings],
        stages=[StageTime(stage, time) for stage, time in seconds.items()],
        seconds=sum(result.seconds for result in results),
        silent=[failure for result in results for failure in result.silent],
        stats={key: value for result in results for key, value in result.stats.items()},
    )


class RunTally:
    """Keeps what a RunResult needs while the events of a run pass by."""

    def __init__(self) -> None:
        self.failures: list[HostFailed] = []
        self.findings: list[Finding] = []
        self.changed: dict[str, int] = {}
        self._stages: dict[str, float] = {}

    def note(self, event: Event) -> None:
        """Remember one event."""
        match event:
            case events.TaskDone():
                self.changed[event.host] = self.changed.get(event.host, 0) + event.changed
            case events.HostFailed():
                self.failures.append(event)
            case events.FindingsReported():
                self.findings.extend(event.findings)
            case events.StageDone():
                self._stages[event.stage] = self._stages.get(event.stage, 0.0) + event.seconds

    @property
    def stages(self) -> list[StageTime]:
        """Stages in the order they ended; a stage that ran twice is summed."""
        return [StageTime(stage, seconds) for stage, seconds in self._stages.items()]

    def final_failures(self, statistics: dict[str, Any]) -> list[HostFailed]:
        """Failures that were not rescued: the last one of each host that Ansible counts as failed.

        `statistics` is ansible-runner's `playbook_on_stats`; empty when the run was stopped before it.
        """
        if not statistics:
            return self.failures
        counted = {host for kind in ("failures", "dark") for host, n in statistics[kind].items() if n}
        last = {failure.host: failure for failure in self.failures}
        return [
            failure for failure in self.failures if failure is last[failure.host] and failure.host in counted
        ]
