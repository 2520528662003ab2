"""What a rank and its all-reduces share: the one error of ours, and what the all-reduces read of a rank."""

from __future__ import annotations

from typing import Any, Protocol


class Refused(Exception):
    """This test cannot be made here: why, and what to do instead."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.fix = fix


class Measuring(Protocol):
    """A rank as its all-reduces see it: `local` is its number on this node, of `world` ranks in all."""

    options: dict[str, Any]
    local: int
    rank: int
    world: int

    def progress(self, done: int, total: int, doing: str) -> None:
        """Report how many sizes are done."""
