"""What shows a run to someone: a terminal, a log of a CI job, another program."""

from __future__ import annotations

from typing import Self

from headfirst.control.run.events import Event, Finding, FindingsReported

STILL_S = 30.0
"""Work of which nothing was heard for this long is shown with that, so that a wait is seen as one."""


class Reporter:
    """The caller opens it as a context manager around one run or several; all calls come from one thread."""

    def __enter__(self) -> Self:
        """Take the terminal."""
        return self

    def __exit__(self, *error: object) -> None:
        """Give the terminal back, whatever happened."""

    def handle(self, event: Event) -> None:
        """Show one event."""

    def warn(self, stage: str, id: str, host: str, what: str, fix: str = "") -> None:
        """Show a warning about a host."""
        self.handle(FindingsReported(stage, host, (Finding(id, "warning", host, what, fix=fix),)))

    def tick(self) -> None:
        """Called about ten times a second, events or not: spinners and elapsed times move here."""


class QuietReporter(Reporter):
    """Shows nothing: for short runs whose result is all that counts."""
