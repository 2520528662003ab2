"""A reporter that shows nothing: for short runs whose result is all that counts."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from headfirst.control.run.events import Event


class QuietReporter:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def handle(self, event: Event) -> None:
        """Ignore the event: the run's result carries what matters."""

    def tick(self) -> None:
        """Nothing moves."""
