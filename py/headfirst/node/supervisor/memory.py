"""What a supervisor must remember of a replica when it is started again: failures, and that it gave up."""

from __future__ import annotations

import contextlib
import json
from dataclasses import Field, asdict, dataclass, fields
from pathlib import Path
from typing import Any

from headfirst.common.state_files import replace_file
from headfirst.node.supervisor import host_state
from headfirst.node.supervisor.host_state import RUN

FOLDER = Path("/var/lib/headfirst/supervisor")
MOST_FAILED_STARTS = 6
# Before the start after the first such end, the second, and so on; the last one holds for all that follow.
_PAUSES_S = (0.0, 5.0, 15.0, 30.0, 60.0)


@dataclass(frozen=True)
class GenerationMemory:
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
    """The memory of each replica, a file each. Requests of people are in /run, which no full disk ends."""

    def __init__(self, folder: Path = FOLDER, run: Path = RUN) -> None:
        self._folder, self._run = folder, run

    def load(self, name: str, generation: str) -> GenerationMemory:
        """What is remembered of the generation; nothing of another one but the length of its start."""
        state = host_state.read_object(self._path(name))
        names = [field.name for field in fields(GenerationMemory) if _is_valid(field, state)]
        saved = {name: state[name] for name in names}
        if saved.get("generation") != generation:
            return GenerationMemory(generation, start_s=saved.get("start_s"))
        return GenerationMemory(**saved)

    def save(self, name: str, memory: GenerationMemory) -> bool:
        """Whether it was written; with a full disk it was not."""
        try:
            self._folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            replace_file(self._path(name), json.dumps(asdict(memory)))
        except OSError:
            return False
        return True

    def ask_again(self, name: str) -> None:
        """Ask the supervisor to try again to start the replica."""
        path = self._request(name)
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        path.touch(mode=0o600)

    def was_asked(self, name: str) -> bool:
        """Whether somebody has asked to try again, since this was read last."""
        with contextlib.suppress(FileNotFoundError):
            self._request(name).unlink()
            return True
        return False

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    def _request(self, name: str) -> Path:
        return self._run / "resume" / name


def _is_valid(field: Field[Any], state: dict[str, Any]) -> bool:
    """Whether a file, which may be damaged or of another version, has a value of the field's type."""
    value = state.get(field.name)
    if isinstance(value, int):
        return isinstance(field.default, int) and value >= 0
    return isinstance(value, float if field.default is None else type(field.default))
