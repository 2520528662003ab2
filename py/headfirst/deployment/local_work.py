"""A stage that runs on this machine: jobs side by side in threads, shown like Ansible's stages."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Protocol

from headfirst.run.events import (
    Event,
    Finding,
    FindingsReported,
    Progress,
    StageDone,
    StageStarted,
    TaskDone,
    TaskStarted,
)
from headfirst.run.reporter import Reporter
from headfirst.run.result import StageTime


class Advance(Protocol):
    """Called as a job advances: what is being done, how much of it, out of how much (0: unknown)."""

    def __call__(self, what: str, done: int, total: int) -> None: ...

    def warn(self, text: str) -> None:
        """Show one sentence about what a person should know; the job goes on."""


def run_jobs(
    reporter: Reporter,
    stage: str,
    title: str,
    jobs: Mapping[str, Callable[[Advance], Any]],
    *,
    unit: str = "steps",
) -> tuple[dict[str, Any], StageTime]:
    """Run every job in a thread of its own and return their results by name, and the time it took.

    The first error is raised when all jobs are through: none is left half-done behind our back.
    """
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    start = time.monotonic()
    reporter.handle(StageStarted(stage, title))

    def run(name: str, job: Callable[[Advance], Any]) -> Any:
        began = time.monotonic()
        events.put(TaskStarted(stage, name, title))
        result = job(_Advance(events, stage, name, unit))
        events.put(TaskDone(stage, name, title, changed=False, seconds=time.monotonic() - began))
        return result

    with ThreadPoolExecutor(max_workers=max(1, len(jobs))) as pool:
        futures: dict[str, Future[Any]] = {name: pool.submit(run, name, job) for name, job in jobs.items()}
        pending = set(futures.values())
        while pending:
            _, pending = wait(pending, timeout=0.1, return_when=FIRST_COMPLETED)
            _drain(events, reporter)
            reporter.tick()
    _drain(events, reporter)
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


def _drain(events: queue.SimpleQueue[Event], reporter: Reporter) -> None:
    while not events.empty():
        reporter.handle(events.get())
