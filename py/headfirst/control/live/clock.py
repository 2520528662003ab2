"""A node's clock against the controller's, and the times of its logs on the controller's clock."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

_PINGS = 5
_MAX_ANSWER = 1024  # characters of a line
LATEST = 1e11  # seconds since 1970


class Clock(NamedTuple):
    """The node is `offset` seconds ahead of the controller; `error`, half the round trip, is how sure."""

    offset: float
    error: float

    def corrected(self, at: float) -> float:
        """A time of the node (seconds since 1970) on the controller's clock."""
        return at - self.offset


def measure(to: Any, out: Any) -> Clock:
    """Ask a running node script for its time; the quickest of a few answers is the surest, as with NTP.

    `to` and `out` are its stdin and stdout. Raises EOFError when it has ended.
    """
    seen = []
    for _ in range(_PINGS):
        before = time.time()
        to.write("time\n")
        to.flush()
        answer = out.readline(_MAX_ANSWER)
        after = time.time()
        if not answer:
            raise EOFError("it ended without an answer")
        told = float(answer)
        if not 0 <= told <= LATEST:
            raise ValueError("its clock is not a time")
        seen.append(Clock(told - (before + after) / 2, (after - before) / 2))
    return min(seen, key=lambda clock: clock.error)
