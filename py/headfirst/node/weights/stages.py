"""How far a node's stages are, how fast they go, and which one the others wait for."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from types import TracebackType

from headfirst.node.weights.files import gigabytes
from headfirst.node.weights.progress import Progress
from headfirst.node.weights.transfer.board import Board

_SMOOTHING_S = 10.0
_SHARDS_BEHIND = 2.5
_SLOWEST_SHOWN = 100_000.0  # bytes a second; less is a start or a standstill


class Stages:
    """Reports one node's stages as the progress of the last of them. Use as a context manager.

    Bytes are those of the source's files, proven: received ones piece by piece, fetched ones by their hash.
    """

    def __init__(self, board: Board, *, converts: bool) -> None:
        self._board = board
        self._converts = converts
        self._progress = Progress("waiting for the head")
        self._received, self._converted = _Rate(), _Rate()

    def __enter__(self) -> Stages:
        self._progress.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.__exit__(kind, error, trace)

    def update(
        self,
        sizes: Mapping[str, int],
        received: int,
        converted: int,
        brought: int,
        remarks: Sequence[str] = (),
    ) -> None:
        """Report how many bytes of the files `sizes` are here, how many of these are converted, how many the
        members that fetch have brought."""
        if self._board.overview is None:
            return
        self._board.say(quietly=True, received=received, converted=converted)
        verb = "fetched" if self._board.index == 0 else "received"
        parts = [f"{verb} {_amount(received, self._received.of(received))}"]
        if self._converts:
            parts.append(f"converted {_amount(converted, self._converted.of(converted))}")
        total = sum(sizes.values())
        done = converted if self._converts else received
        if done < total:
            parts.append(f"slowest: {self._slowest(sizes, received, converted, brought)}")
        parts += remarks
        self._progress.note = ", ".join(parts)
        # Who waits for others is stopped by its job only if these do nothing either.
        self._progress.alive = sum(
            member.received + member.converted + member.fetched for member in self._board.members
        )
        self._progress.total = total
        self._progress.set(done)

    def _slowest(self, sizes: Mapping[str, int], received: int, converted: int, brought: int) -> str:
        """The first stage, from the last one up, that has work waiting for it."""
        waiting = _SHARDS_BEHIND * max(sizes.values(), default=0)
        if self._converts and received - converted > waiting:
            return "conversion"
        if self._board.index > 0 and brought - received > waiting:
            return "network"
        total = sum(sizes.values())
        if brought < total:
            return "fetch"
        return "conversion" if self._converts and received >= total else "network"


class _Rate:
    """Bytes a second, smoothed."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._done = 0
        self._rate = 0.0

    def of(self, done: int) -> float:
        """The rate now that `done` bytes are done."""
        now = time.monotonic()
        if self._at is not None and now > self._at:
            elapsed = now - self._at
            weight = 1 - math.exp(-elapsed / _SMOOTHING_S)
            self._rate += weight * ((done - self._done) / elapsed - self._rate)
        self._at, self._done = now, done
        return max(0.0, self._rate)


def _amount(done: int, rate: float) -> str:
    return gigabytes(done) + (f" at {gigabytes(round(rate))}/s" if rate >= _SLOWEST_SHOWN else "")
