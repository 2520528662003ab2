"""Errors a person reads: what is wrong, where, and what to type next.

Exit codes: 1 failed, 2 wrong input, 3 not ready.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class HeadfirstError(Exception):
    """A failure with one clear paragraph.

    `what` is one sentence; `where` is `file:line` or a host; `hint` is the next step to take.
    """

    exit_code = 1

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}\n{self.hint}" if self.hint else text


@contextmanager
def located(where: str | None = None, hint: str | None = None) -> Iterator[None]:
    """Errors raised inside have this place and this next step where they have none of their own."""
    try:
        yield
    except HeadfirstError as error:
        error.where, error.hint = error.where or where, error.hint or hint
        raise


class InputError(HeadfirstError):
    """What the user wrote (inventory, flag, model name) cannot be carried out as written."""

    exit_code = 2


class NotReadyError(HeadfirstError):
    """A host, a service or a file is not in the state that the next step needs."""

    exit_code = 3


class UnreachableError(NotReadyError):
    """A host does not answer, or nothing leads to it."""


class StoppedError(HeadfirstError):
    """Somebody stopped the run; what would follow is not begun."""
