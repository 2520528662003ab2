"""Whether what a node lacks can still come, now that others failed or are gone."""

from __future__ import annotations

import time
from collections.abc import Set as AbstractSet

from headfirst.common.errors import NotReadyError
from headfirst.node.weights.transfer.board import Board
from headfirst.node.weights.transfer.link import Refused


class Outlook:
    """For one node, of which bytes have to come at least every `patience_s` where nobody is left to ask."""

    def __init__(self, board: Board, patience_s: float) -> None:
        self._board = board
        self._patience_s = patience_s
        self._here = -1
        self._moved_at = time.monotonic()

    def check(self, lacking: AbstractSet[str], here: int, cut_off: Exception | None) -> None:
        """NotReadyError where the files `lacking` will not come any more.

        `here` are the bytes that came so far; `cut_off` is why no node before this one is heard any more.
        """
        now = time.monotonic()
        if here != self._here:
            self._here, self._moved_at = here, now
        stalled = now - self._moved_at > self._patience_s
        if not lacking and self._board.overview and self._board.overview.sizes:
            return
        if cut_off and (stalled or isinstance(cut_off, Refused)):
            raise cut_off
        origin = self._board.member(0)
        if origin.error and (stalled or not self._is_elsewhere(lacking)):
            raise NotReadyError(f"the node that brings the weights failed: {origin.error}")
        silent = self._board.silent_for(0)
        if stalled and (origin.done or silent is None or silent > self._patience_s):
            raise NotReadyError(
                f"nothing was received for {self._patience_s:.0f} s: the remaining nodes "
                "do not have all files",
                hint="Run again on all nodes: it continues.",
            )

    def _is_elsewhere(self, lacking: AbstractSet[str]) -> bool:
        """Whether nodes that neither failed nor bring the files have all that is lacking."""
        others = [member for member in self._board.members[1:] if not member.error]
        return bool(lacking) and lacking <= frozenset().union(*(member.have for member in others))
