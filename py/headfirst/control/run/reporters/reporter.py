"""What shows a run to someone: a terminal, a log of a CI job, another program."""

from __future__ import annotations

from typing import Self

from headfirst.control.run.events import Event

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

    def tick(self) -> None:
        """Called about ten times a second, events or not: spinners and elapsed times move here."""


class QuietReporter(Reporter):
    """Shows nothing: for short runs whose result is all that counts."""
