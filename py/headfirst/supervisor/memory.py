"""What a supervisor must remember of a replica when it is started again: failures, and that it gave up."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from headfirst.state_files import replace_file
from headfirst.supervisor import documents

FOLDER = Path("/var/lib/headfirst/supervisor")
MOST_FAILED_STARTS = 6
# Before the start after the first such end, the second, and so on; the last one holds for all that follow.
_PAUSES_S = (0.0, 5.0, 15.0, 30.0, 60.0)


@dataclass(frozen=True)
class Memory:
    """Of one generation."""

    generation: str = ""
    early_ends: int = 0  # in a row: the replica ended before it had served for a minute
    failed_starts: int = 0  # in a row: the replica ended before it served at all
    refused_starts: int = 0  # in a row: a node did not start its rank
    gave_up: str = ""
    restarts: int = 0
    last_reason: str = ""
    start_s: float | None = None  # how long the last start took

    @property
    def pause_s(self) -> float:
        """Seconds between the last end, or the last refusal of a start, and the next start."""
        # An end that comes early may be chance; what refused a start once refuses the next one, too.
        ends = max(self.early_ends, self.refused_starts + 1 if self.refused_starts else 0)
        return _PAUSES_S[min(ends, len(_PAUSES_S)) - 1] if ends else 0.0

    @property
    def is_too_much(self) -> bool:
        """Whether so many starts have failed that another one is not tried."""
        return self.failed_starts >= MOST_FAILED_STARTS


class Memories:
    """The memory of each replica, a file each."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder

    def load(self, name: str, generation: str) -> Memory:
        """What is remembered of the generation; nothing of another one but the length of its start."""
        found = self._read(name)
        if found is None:
            return Memory(generation)
        return found if found.generation == generation else Memory(generation, start_s=found.start_s)

    def save(self, name: str, memory: Memory) -> None:
        """Keep it. With a full disk it is remembered until this process ends."""
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            replace_file(self._path(name), json.dumps(asdict(memory)))

    def forget(self, name: str) -> bool:
        """Forget that it gave up, and why; whether it had."""
        found = self._read(name)
        if found is None or not found.gave_up:
            return False
        self.save(name, replace(found, gave_up="", early_ends=0, failed_starts=0))
        return True

    def _read(self, name: str) -> Memory | None:
        try:
            return Memory(**found) if (found := documents.read(self._path(name))) else None
        except TypeError:  # of another version
            return None

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"
