"""What a rehearsal has found."""

from __future__ import annotations

from typing import Literal

from headfirst.decide.diagnose.types import Diagnosis
from headfirst.decide.frozen import Tolerant

State = Literal["passed", "failed", "not rehearsed", "stopped"]


class RehearsedReplica(Tolerant):
    """One replica. `why`: a sentence, "" where it passed. `found`: what the logs of its ranks show.

    `phases` are seconds of each part of the start, in their order, `left_out` what the ranks started without.
    """

    service: str
    replica: int
    state: State
    why: str = ""
    fix: str = ""
    host: str = ""  # of `why`
    seconds: float = 0
    phases: dict[str, float] = {}
    left_out: list[str] = []
    logs: str = ""  # a folder of this machine with the logs of ranks that failed
    found: Diagnosis | None = None


class Rehearsed(Tolerant):
    """All replicas. `passed`: each one that could be rehearsed served a request with dummy weights."""

    passed: bool
    replicas: list[RehearsedReplica]
