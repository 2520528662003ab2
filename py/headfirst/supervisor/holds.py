"""A hold: somebody else works on a replica of this node, and the supervisor leaves it alone.

It is in memory, so a reboot ends it. A hold that a run of `deploy` made ends with the run's lock of the host;
any hold ends after its time.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headfirst.state_files import replace_file
from headfirst.supervisor import clock, documents

RUN = Path("/run/headfirst")


class Holds:
    """The holds of this node, a file each."""

    def __init__(self, run: Path = RUN) -> None:
        self._run = run

    def hold(self, name: str, seconds: float) -> None:
        """Hold the replica for so long at most."""
        lock = self._lock()
        path = self._path(name)
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        document = {"ends": clock.uptime() + seconds, "seconds": seconds, "lock": lock.get("token", "")}
        replace_file(path, json.dumps(document))

    def release(self, name: str) -> None:
        """End the hold."""
        self._path(name).unlink(missing_ok=True)

    def is_held(self, name: str) -> bool:
        """Whether the replica is held now."""
        found = documents.read(self._path(name))
        if not _lasts(found, "seconds"):
            return False
        return not found.get("lock") or self._lock().get("token") == found["lock"]

    def _path(self, name: str) -> Path:
        return self._run / "holds" / f"{name}.json"

    def _lock(self) -> dict[str, Any]:
        """The lock of a run of `deploy` on this host (ownership/node_script.py), {} where there is none."""
        lock = documents.read(self._run / "lock.json")
        return lock if _lasts(lock, "lease_s") else {}


def _lasts(found: dict[str, Any], length: str) -> bool:
    """Whether the time that is called `length` has not passed; that of an earlier boot has."""
    ends, seconds = found.get("ends"), found.get(length)
    if not isinstance(ends, (int, float)) or not isinstance(seconds, (int, float)):
        return False
    return 0 < ends - clock.uptime() <= seconds
