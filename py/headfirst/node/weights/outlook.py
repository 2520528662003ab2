"""How far the stages of a node in a transfer are, and whether what it lacks can still come."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from headfirst.common.errors import NotReadyError
from headfirst.node.weights.files import gigabytes
from headfirst.node.weights.progress import WeightsProgress
from headfirst.node.weights.transfer.board import Board
from headfirst.node.weights.transfer.link import PeerRefused

_SMOOTHING_S = 10.0
_SHARDS_BEHIND = 2.5
_SLOWEST_SHOWN = 100_000.0  # bytes a second; less is a start or a standstill


class Outlook:
    """Ends the wait of a node for files that will not come.

    Bytes must come at least every `patience_s` seconds where no member is left to ask.
    """

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
        if cut_off and (stalled or isinstance(cut_off, PeerRefused)):
            raise cut_off
        origin = self._board.members[0]
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


class Stages(WeightsProgress):
    """Reports the stages of one node as the progress of the last of them. Use as a context manager.

    Bytes are those of the source's files, proven: received ones piece by piece, fetched ones by their hash.
    """

    def __init__(self, board: Board, *, converts: bool) -> None:
        super().__init__(f"waiting for {'the head' if board.index else 'the list of files'}")
        self._board = board
        self._converts = converts
        self._received, self._converted = _Rate(), _Rate()

    def update(
        self,
        sizes: Mapping[str, int],
        received: int,
        converted: int,
        brought: int,
        remarks: Sequence[str] = (),
    ) -> None:
        """Report the bytes of the files `sizes` that are here, that are converted, and that were fetched."""
        if self._board.overview is None:
            return
        self._board.report(notify=False, received=received, converted=converted)
        verb = "fetched" if self._board.index == 0 else "received"
        parts = [f"{verb} {_amount(received, self._received.of(received))}"]
        if self._converts:
            parts.append(f"converted {_amount(converted, self._converted.of(converted))}")
        total = sum(sizes.values())
        done = converted if self._converts else received
        if done < total:
            parts.append(f"slowest: {self._slowest(sizes, received, converted, brought)}")
        parts += remarks
        self.note = ", ".join(parts)
        # Who waits for others is stopped by its job only if these do nothing either.
        self.alive = sum(
            member.received + member.converted + member.fetched for member in self._board.members
        )
        self.total = total
        self.add(done - self.done)

    def _slowest(self, sizes: Mapping[str, int], received: int, converted: int, brought: int) -> str:
        """The first stage, from the last one up, that has work waiting for it."""
        waiting = _SHARDS_BEHIND * max(sizes.values(), default=0)
        if self._converts and received - converted > waiting:
            return "conversion"
        if self._board.index > 0 and brought - received > waiting:
            return "network"
        total = sum(sizes.values())
        if brought < total:
            source = self._board.overview.made_from.get("source") if self._board.overview else None
            return f"fetch from {source}" if source else "fetch"
        return "conversion" if self._converts and received >= total else "network"


class _Rate:
    """Bytes a second, smoothed."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._moved_at = 0.0
        self._done = 0
        self._rate = 0.0

    def of(self, done: int) -> float:
        """The rate now that `done` bytes are done."""
        now = time.monotonic()
        if self._at is not None and now > self._at:
            elapsed = now - self._at
            weight = 1 - math.exp(-elapsed / _SMOOTHING_S)
            self._rate += weight * ((done - self._done) / elapsed - self._rate)
        self._moved_at = now if done != self._done else self._moved_at
        self._at, self._done = now, done
        return max(0.0, self._rate) if now - self._moved_at < _SMOOTHING_S else 0.0


def _amount(done: int, rate: float) -> str:
    return gigabytes(done) + (f" at {gigabytes(round(rate))}/s" if rate >= _SLOWEST_SHOWN else "")
