"""Plain lines for what is not a terminal: no colour, nothing rewritten, progress at most every 5 s a host."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TextIO

from headfirst.common.untrusted import for_terminal
from headfirst.control.run import events
from headfirst.control.run.amounts import amount, duration, speed
from headfirst.control.run.reporters.reporter import STILL_S, Reporter

PROGRESS_EVERY_S = 5.0


class PlainReporter(Reporter):
    """Writes one line for a stage, a change, a failure, and for long work."""

    def __init__(self, out: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._out, self._clock = out, clock
        self._spoke: dict[str, float] = {}
        self._running: dict[str, tuple[events.TaskStarted, float]] = {}
        self._last: dict[str, tuple[events.Progress, float]] = {}

    def handle(self, event: events.Event) -> None:
        """Write the event's line, if it has one."""
        match event:
            case events.StageStarted():
                self._line(f"== {event.stage}: {event.title}{_expected(event)}")
            case events.TaskStarted():
                now = self._clock()
                self._running[event.host] = (event, now)
                self._spoke[event.host] = now
                self._last.pop(event.host, None)
            case events.TaskDone():
                self._running.pop(event.host, None)
                if event.changed:
                    self._say(event.host, f"changed: {event.task}")
            case events.Progress():
                self._last[event.host] = (event, self._clock())
                self._progress(event)
            case events.FindingsReported():
                for finding in event.findings:
                    if finding.severity == "error":
                        continue  # the run's last paragraph lists them all
                    self._say(finding.host, f"{finding.severity}: {finding.text}")
            case events.HostFailed():
                self._running.pop(event.host, None)
                kind = "unreachable" if event.unreachable else "failed"
                self._say(event.host, f"{kind}: {event.task}: {event.message}")
            case events.StageDone():
                failed = f", failed on {', '.join(event.failed_hosts)}" if event.failed_hosts else ""
                failed += "" if event.completed else ", broken off"
                self._line(f"== {event.stage}: {duration(event.seconds)}, {event.changed} changed{failed}")
            case events.RunDone(cancelled=True):
                self._line(f"== stopped after {duration(event.seconds)}")

    def tick(self) -> None:
        """Report hosts that have been at one task for long."""
        now = self._clock()
        for host, (event, since) in self._running.items():
            if now - self._spoke[host] >= STILL_S:
                text = f"still at: {event.task} ({duration(now - since)})"
                if host in self._last:
                    progress, at = self._last[host]
                    text += f"; {_state(progress, [progress.note])}, nothing new for {duration(now - at)}"
                self._say(host, text)

    def _progress(self, event: events.Progress) -> None:
        finished = event.total > 0 and event.done >= event.total
        if not finished and self._clock() - self._spoke.get(event.host, -PROGRESS_EVERY_S) < PROGRESS_EVERY_S:
            return
        rate = speed(event.rate, event.unit) if event.rate else ""
        time_left = f"{duration(event.eta)} left" if event.eta is not None else ""
        self._say(event.host, _state(event, [rate, time_left, event.note]))

    def _say(self, host: str, text: str) -> None:
        self._spoke[host] = self._clock()
        self._line(f"   {host}: {text}".replace("\n", "\n      "))

    def _line(self, text: str) -> None:
        print(for_terminal(text), file=self._out, flush=True)


def _state(event: events.Progress, more: Sequence[str]) -> str:
    """How far long work is."""
    done = amount(event.done, event.total, event.unit) if event.done or event.total else ""
    return f"{event.what}: {', '.join(filter(None, [done, *more]))}".removesuffix(": ")


def _expected(event: events.StageStarted) -> str:
    """What recorded runs of the same kind took."""
    parts = [f"about {duration(event.expected_seconds)}"] if event.expected_seconds is not None else []
    if event.left_seconds is not None:
        parts.append(f"{duration(event.left_seconds)} to the end")
    return f" ({', '.join(parts)})" if parts else ""
