"""Time since boot, which no change of the clock moves and which goes on while the machine sleeps."""

from __future__ import annotations

import time


def uptime() -> float:
    """Seconds since boot."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
