"""A stage that runs on this machine: jobs side by side in threads, shown like Ansible's stages."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any, Protocol

from headfirst.common.errors import HeadfirstError
from headfirst.control.machine import sudo
from headfirst.control.machine.packages import Advance
from headfirst.control.run.amounts import duration
from headfirst.control.run.events import (
    Event,
    Finding,
    FindingsReported,
    HostFailed,
    Progress,
    StageDone,
    StageStarted,
    TaskDone,
    TaskStarted,
)
from headfirst.control.run.reporters.reporter import Reporter
from headfirst.control.run.result import StageTime

HEARTBEAT_S = 15.0
"""No job is silent for longer, whatever it waits for."""


class JobAdvance(Advance, Protocol):
    """Called as a job advances."""

    def warn(self, text: str) -> None:
        """Show one sentence about what the user needs; the job goes on."""


def ask_for_root(reporter: Reporter) -> None:
    """Ask for sudo's password now, while the display does not draw over the question."""
    if sudo.needs_password():
        reporter.__exit__(None, None, None)
        try:
            sudo.ask_for_password()
        finally:
            reporter.__enter__()


def run_jobs(
    reporter: Reporter,
    stage: str,
    title: str,
    jobs: Mapping[str, Callable[[JobAdvance], Any]],
    *,
    unit: str = "steps",
) -> tuple[dict[str, Any], StageTime]:
    """Run every job in a thread of its own and return their results by name, and the time it took.

    The first error is raised when all jobs are through: none is left half-done behind our back. A job that
    reports nothing for HEARTBEAT_S seconds has its last report repeated with the time that it has run.
    """
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    pulses: dict[str, _Pulse] = {}
    start = time.monotonic()
    reporter.handle(StageStarted(stage, title))

    def run(name: str, job: Callable[[JobAdvance], Any]) -> Any:
        began = time.monotonic()
        events.put(TaskStarted(stage, name, title))
        try:
            result = job(_Advance(events, stage, name, unit))
        except Exception as error:
            # Shown at once: the other jobs may go on for minutes before it is raised.
            what = error.what if isinstance(error, HeadfirstError) else str(error)
            events.put(HostFailed(stage, name, title, what, unreachable=False, result={}))
            raise
        events.put(TaskDone(stage, name, title, changed=False, seconds=time.monotonic() - began))
        return result

    with ThreadPoolExecutor(max_workers=max(1, len(jobs))) as pool:
        futures: dict[str, Future[Any]] = {name: pool.submit(run, name, job) for name, job in jobs.items()}
        pending = set(futures.values())
        while pending:
            _, pending = wait(pending, timeout=0.1, return_when=FIRST_COMPLETED)
            _drain(events, reporter, pulses)
            for pulse in pulses.values():
                if event := pulse.due():
                    reporter.handle(event)
            reporter.tick()
    _drain(events, reporter, pulses)
    failed = tuple(name for name, future in futures.items() if future.exception())
    seconds = time.monotonic() - start
    reporter.handle(StageDone(stage, seconds, changed=0, failed_hosts=failed))
    return {name: future.result() for name, future in futures.items()}, StageTime(stage, seconds)


@dataclass(frozen=True)
class _Advance:
    events: queue.SimpleQueue[Event]
    stage: str
    name: str
    unit: str

    def __call__(self, what: str, done: int, total: int) -> None:
        self.events.put(Progress(self.stage, self.name, what, done, total, self.unit, "", None, None))

    def warn(self, text: str) -> None:
        finding = Finding(id="local-settings", severity="warning", host=self.name, what=text)
        self.events.put(FindingsReported(self.stage, self.name, (finding,)))


@dataclass
class _Pulse:
    """A job's last report, and when it was shown."""

    began: float
    shown: float
    last: Progress | None = None

    def due(self) -> Progress | None:
        """The last report once more, where it is HEARTBEAT_S seconds old."""
        now = time.monotonic()
        if self.last is None or now - self.shown < HEARTBEAT_S:
            return None
        self.shown = now
        return replace(self.last, note=f"running for {duration(now - self.began)}")


def _drain(events: queue.SimpleQueue[Event], reporter: Reporter, pulses: dict[str, _Pulse]) -> None:
    while not events.empty():
        event, now = events.get(), time.monotonic()
        match event:
            case TaskStarted():
                pulses[event.host] = _Pulse(began=now, shown=now)
            case Progress():
                pulses[event.host].shown, pulses[event.host].last = now, event
            case TaskDone() | HostFailed():
                del pulses[event.host]
        reporter.handle(event)
