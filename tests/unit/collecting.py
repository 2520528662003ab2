"""A reporter that keeps what it is given."""

from __future__ import annotations

from headfirst.control.run.events import Event
from headfirst.control.run.reporters.reporter import Reporter


class Collector(Reporter):
    """`events` in their order; `ticks`: how often the display would have moved."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.ticks = 0

    def handle(self, event: Event) -> None:
        self.events.append(event)

    def tick(self) -> None:
        self.ticks += 1
