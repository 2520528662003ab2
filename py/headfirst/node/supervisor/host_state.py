"""State of this host that the supervisor and its commands share: time since boot, JSON files, holds."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from headfirst.common.state_files import replace_file

RUN = Path("/run/headfirst")


def uptime() -> float:
    """Seconds since boot, which no change of the clock moves and which go on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; {} where there is none, as where a node lost power while it was written."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


class Holds:
    """The holds of this node, a file each. The supervisor leaves a replica that is held to somebody else.

    A hold is in memory, so a reboot ends it. One that a run of `deploy` made ends with the run's lock of the
    host; any hold ends after its time. A run neither replaces nor ends a hold that a person set.
    """

    def __init__(self, run: Path = RUN) -> None:
        self._run = run

    def hold(self, name: str, seconds: float, *, by_run: bool = False) -> bool:
        """Hold the replica for so long at most; False, for a run, where a person holds it."""
        if by_run and self._is_by_hand(name):
            return False
        lock = self._lock()
        path = self._path(name)
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        document = {"ends": uptime() + seconds, "seconds": seconds, "lock": lock.get("token", "")}
        replace_file(path, json.dumps({**document, "by_run": by_run}))
        return True

    def release(self, name: str, *, by_run: bool = False) -> None:
        """End the hold; a run ends one of a run only."""
        if not (by_run and self._is_by_hand(name)):
            self._path(name).unlink(missing_ok=True)

    def is_held(self, name: str) -> bool:
        """Whether the replica is held now."""
        hold = read_object(self._path(name))
        if not _lasts(hold, "seconds"):
            return False
        return not hold.get("lock") or self._lock().get("token") == hold["lock"]

    def _is_by_hand(self, name: str) -> bool:
        hold = read_object(self._path(name))
        # Earlier releases did not write who made a hold.
        return self.is_held(name) and not hold.get("by_run", bool(hold.get("lock")))

    def _path(self, name: str) -> Path:
        return self._run / "holds" / f"{name}.json"

    def _lock(self) -> dict[str, Any]:
        """The lock of a run of `deploy` on this host (ownership/node_script.py), {} where there is none."""
        lock = read_object(self._run / "lock.json")
        return lock if _lasts(lock, "lease_s") else {}


def _lasts(document: dict[str, Any], length: str) -> bool:
    """Whether the time that is called `length` has not passed; that of an earlier boot has."""
    ends, seconds = document.get("ends"), document.get(length)
    if not isinstance(ends, (int, float)) or not isinstance(seconds, (int, float)):
        return False
    return 0 < ends - uptime() <= seconds
