"""Follows the file to which the job plugin appends how far long work is, one JSON object a line.

Lines are `{"host", "what", "done", "total", "unit", "note"}`; rate and time left are computed here.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headfirst.common.untrusted import UntrustedError, json_document
from headfirst.control.run.events import Progress

# Window of the rate: a shorter one jumps, a longer one hides a stall.
SMOOTHING_S = 10.0


@dataclass
class _Meter:
    """Smoothed rate of one piece of work on one host."""

    done: int
    at: float
    rate: float | None = None

    def advance(self, done: int, now: float) -> None:
        if done < self.done:  # begun again
            self.done, self.at, self.rate = done, now, None
            return
        elapsed = now - self.at
        if elapsed <= 0:
            return
        latest = (done - self.done) / elapsed
        weight = 1 - math.exp(-elapsed / SMOOTHING_S)
        self.rate = latest if self.rate is None else self.rate + weight * (latest - self.rate)
        self.done, self.at = done, now


class ProgressTail:
    """Reads what was appended since the last call; a half-written line waits for its end."""

    def __init__(
        self, path: Path, on_bad_line: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._on_bad_line = on_bad_line
        self._clock = clock
        self._offset = 0
        self._rest = b""
        self._meters: dict[tuple[str, str], _Meter] = {}

    def read(self, stage: str) -> list[Progress]:
        """New states in the order they were written, as of `stage`. No file yet means none."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            fresh = file.read()
        self._offset += len(fresh)
        *lines, self._rest = (self._rest + fresh).split(b"\n")
        return [state for line in lines if (state := self._parse(line, stage)) is not None]

    def _parse(self, line: bytes, stage: str) -> Progress | None:
        try:
            record = json_document(line, what="a line of progress", limit=1 << 16, depth=4)
            host, what = str(record["host"]), str(record["what"])
            done, total = int(record["done"]), int(record["total"])
        except (UntrustedError, ValueError, OverflowError, KeyError, TypeError):
            self._on_bad_line(line.decode(errors="replace"))
            return None
        now = self._clock()
        meter = self._meters.setdefault((host, what), _Meter(done, now))
        meter.advance(done, now)
        eta = (total - done) / meter.rate if meter.rate and total > done else None
        return Progress(
            stage=stage,
            host=host,
            what=what,
            done=done,
            total=total,
            unit=str(record.get("unit") or ""),
            note=str(record.get("note") or ""),
            rate=meter.rate,
            eta=eta,
        )
