"""Where the ranks' waiters, one process a host on the controller, share what they see."""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

# The smaller, the nearer to the reason: a lost peer and a timeout are effects of other failures.
DIED, UNREACHABLE, ECHO, LATE, ALIVE, READY = range(6)


@dataclass(frozen=True)
class Verdict:
    """What one host's waiter found.

    `kind` is one of the constants above; `lines` are log lines, ready to show; `at` is the controller's
    clock, in seconds.
    """

    host: str
    rank: int
    kind: int
    reason: str
    hint: str = ""
    lines: list[str] = field(default_factory=list)
    doing: str = ""
    at: float = field(default_factory=time.time)


class RankBoard:
    """A folder with one file a rank, named RANK.KIND.json: the names alone answer what is asked often."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)

    def post(self, verdict: Verdict) -> None:
        """Put a rank's verdict on the board in place of its last one."""
        target = self._folder / f"{verdict.rank}.{verdict.kind}.json"
        with tempfile.NamedTemporaryFile("w", dir=self._folder, prefix=".", delete=False) as file:
            json.dump(asdict(verdict), file)
        Path(file.name).replace(target)
        for old in self._folder.glob(f"{verdict.rank}.[0-9].json"):
            if old != target:
                old.unlink()

    def kinds(self) -> dict[int, int]:
        """Return the kind of each rank's verdict; no file is opened."""
        found: dict[int, int] = {}
        for file in self._folder.iterdir():
            rank, _dot, rest = file.name.partition(".")
            if rank:  # else it is being written
                kind = int(rest[0])
                # Between two verdicts a rank has both files.
                found[int(rank)] = min(kind, found.get(int(rank), kind))
        return found

    def read(self) -> list[Verdict]:
        """Return the verdicts that are there, by rank."""
        files = (self._folder / f"{rank}.{kind}.json" for rank, kind in sorted(self.kinds().items()))
        return [Verdict(**json.loads(file.read_text())) for file in files if file.exists()]


def explain(verdicts: list[Verdict]) -> tuple[Verdict, str]:
    """Return the verdict that decides, and one paragraph for a person with the lines and the next step."""
    decisive = min(verdicts, key=lambda verdict: (verdict.kind, verdict.at))
    text = [f"Rank {decisive.rank} on {decisive.host}: {decisive.reason}."]
    text += [f"  | {line}" for line in decisive.lines]
    if decisive.kind == LATE:
        text += [f"  rank {v.rank} on {v.host}, when the time was up: {v.doing}" for v in verdicts]
    others = [v for v in verdicts if v.kind <= ECHO and v.rank != decisive.rank]
    for v in others:
        text.append(
            f"Then rank {v.rank} on {v.host}: {'the same' if v.reason == decisive.reason else v.reason}."
        )
    return decisive, "\n".join([*text, decisive.hint])
