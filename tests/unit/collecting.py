"""Reporters that keep what they are given."""

from __future__ import annotations

from headfirst.control.run.events import Event, FindingsReported
from headfirst.control.run.reporters.reporter import QuietReporter, Reporter


class Collector(Reporter):
    """`events` in their order; `ticks`: how often the display would have moved."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.ticks = 0

    def handle(self, event: Event) -> None:
        self.events.append(event)

    def tick(self) -> None:
        self.ticks += 1


class Warnings(QuietReporter):
    """Keeps what the findings say."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def handle(self, event: Event) -> None:
        if isinstance(event, FindingsReported):
            self.texts += [finding.what for finding in event.findings]
