"""Where the ranks' waiters, one process a host on the controller, share what they see."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ansible_collections.headfirst.serving.plugins.plugin_utils.failure_causes import Symptom, decisive
from ansible_collections.headfirst.serving.plugins.plugin_utils.meeting import put

# What a rank's waiter does next follows from its kind, and from the kinds of the other ranks.
DIED, UNREACHABLE, ECHO, LATE, ALIVE, READY = range(6)
_LINES = 3  # of the log, in an explanation


@dataclass(frozen=True)
class RankVerdict:
    """The state of one host's rank.

    `kind` is one of the constants above; `state` follows "the rank", `doing` is its work by its log.
    `symptoms` are of its log and of its state; `errors` are further log lines that name an error, ready to
    show. `at` is the controller's clock, in seconds.
    """

    host: str
    rank: int
    kind: int
    state: str
    symptoms: list[Symptom] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    doing: str = ""
    at: float = field(default_factory=time.time)

    @property
    def reason(self) -> str:
        """Why the rank ended, as far as its own symptoms show it."""
        return self.describe(decisive(self.symptoms)) if self.kind < ALIVE else self.state

    def describe(self, symptom: Symptom | None) -> str:
        """Return a symptom of this rank in words, with the state of the rank."""
        if symptom is None:
            return self.state
        return symptom.means if self.state in symptom.means else f"{symptom.means} ({self.state})"


class RankBoard:
    """A folder with one file a rank, named RANK.KIND.json: the names alone answer what is asked often."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)

    def post(self, verdict: RankVerdict) -> None:
        """Put a rank's verdict on the board in place of its last one."""
        target = self._folder / f"{verdict.rank}.{verdict.kind}.json"
        put(self._folder, target.name, asdict(verdict))
        for old in self._folder.glob(f"{verdict.rank}.[0-9].json"):
            if old != target:
                old.unlink()

    def kinds(self) -> dict[int, int]:
        """Return the kind of each rank's verdict; no file is opened."""
        kinds: dict[int, int] = {}
        for file in self._folder.iterdir():
            rank, _dot, rest = file.name.partition(".")
            if rank:  # else it is being written
                kind = int(rest[0])
                # Between two verdicts a rank has both files.
                kinds[int(rank)] = min(kind, kinds.get(int(rank), kind))
        return kinds

    def read(self) -> list[RankVerdict]:
        """Return the verdicts that are there, by rank."""
        files = (self._folder / f"{rank}.{kind}.json" for rank, kind in sorted(self.kinds().items()))
        return [_verdict(json.loads(file.read_text())) for file in files if file.exists()]


def _verdict(document: dict[str, object]) -> RankVerdict:
    symptoms = [Symptom(**symptom) for symptom in document.pop("symptoms")]  # type: ignore[attr-defined]
    return RankVerdict(**document, symptoms=symptoms)  # type: ignore[arg-type]


def explain(verdicts: list[RankVerdict]) -> tuple[RankVerdict, Symptom, str]:
    """Return the rank where it began, its symptom, and one paragraph for a person with the next step."""
    cause = decisive([symptom for verdict in verdicts for symptom in verdict.symptoms])
    if cause is None:
        raise ValueError("no rank has failed")
    first = next(v for v in verdicts if any(symptom is cause for symptom in v.symptoms))
    text = [f"Rank {first.rank} on {first.host}: {first.describe(cause)}."]
    text += [f"  | {line}" for line in list(dict.fromkeys([*cause.lines, *first.errors]))[:_LINES]]
    if any(v.kind == LATE for v in verdicts):
        text += [f"  rank {v.rank} on {v.host}, when the time was up: {v.doing}" for v in verdicts]
    for v in verdicts:
        if v is not first and (v.kind <= ECHO or (v.kind == LATE and first.kind != LATE)):
            same = v.reason == first.describe(cause)
            text.append(f"Then rank {v.rank} on {v.host}: {'the same' if same else v.reason}.")
    return first, cause, "\n".join([*text, cause.fix])
