"""What the supervisor of rank 0 does: state, observation and time → the next state, and actions. Pure.

    watching -> starting -> serving
          a rank ends, or the engine hangs -> down: stop what is left, start rank 0, then the others

Whoever carries the actions out observes again and decides at once, until nothing is left to be done. Beside
the actions, two parts of the state are to be made true after each decision: `memory` is saved, and the engine
is watched since `watched_since`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ansible_collections.headfirst.serving.plugins.module_utils.rollout import head_first

from headfirst.node.supervisor.memory import MOST_FAILED_STARTS, GenerationMemory
from headfirst.node.supervisor.messages import Seen
from headfirst.node.supervisor.records import GenerationRecord

Phase = Literal["watching", "serving", "down", "starting", "held", "gave_up"]
# A replica that has served for so long is taken for one that works.
SETTLED_S = 60.0
# After so long without a decision this process stood still, and silence of the engine may be its own.
_GAP_S = 30.0
# Of ranks that ended together, one that was killed is the cause; the others lost their peer.
_CAUSES = ("killed: out of memory", "exit code 137", "exit code 139", "exit code 134")


@dataclass(frozen=True)
class HealthReading:
    """Whether the engine has answered since its start, and seconds since it computed last."""

    serves: bool
    silent_s: float


@dataclass(frozen=True)
class Observation:
    """`ranks` by rank; None stands for one whose node does not answer.

    `answers` are of the ranks that the last decision stopped or started, `logs` of those that it had read.
    `health` is None where the engine is not watched. `resume`: a person asked to try again.
    """

    ranks: tuple[Seen | None, ...]
    health: HealthReading | None = None
    answers: Mapping[int, Seen | None] = field(default_factory=dict)
    logs: Mapping[int, Sequence[str]] = field(default_factory=dict)
    resume: bool = False


@dataclass(frozen=True)
class Stop:
    """Stop these ranks."""

    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Start:
    """Start these ranks."""

    ranks: tuple[int, ...]


@dataclass(frozen=True)
class ReadLogs:
    """Read the logs of all ranks."""


@dataclass(frozen=True)
class Emit:
    """Record an event; `logs` are the last lines of ranks, of which `rank` is the one that it is about."""

    kind: str
    text: str
    rank: int = 0
    logs: Mapping[int, Sequence[str]] = field(default_factory=dict)


Action = Stop | Start | ReadLogs | Emit


@dataclass(frozen=True)
class Status:
    """What `deploy status` shows. `since` is in seconds since boot."""

    phase: Phase
    text: str
    since: float


@dataclass(frozen=True)
class Failure:
    """Why the replica ends as a whole: the rank that is most likely the cause, and the reason."""

    rank: int
    reason: str


@dataclass(frozen=True)
class GenerationState:
    """Of one generation of a replica. Times are seconds since boot."""

    record: GenerationRecord
    memory: GenerationMemory
    status: Status
    acted_at: float  # when the replica failed, or began to serve
    decided_at: float
    starts: tuple[str, ...] = ()  # of the ranks that are watched; "" where it is not known
    watched_since: float | None = None
    silent_since: float = 0.0  # silence of the engine before this does not count
    started_at: float | None = None  # when it was started here; None: it was found running
    # A start takes several decisions; "idle" between starts.
    step: Literal["idle", "stopping", "head", "others"] = "idle"
    failure: Failure | None = None  # the ranks' logs are read before it ends

    @property
    def serves(self) -> bool | None:
        """Whether requests may be sent to the replica; None while somebody else changes it."""
        phase = self.status.phase
        # Ranks that were found running may be serving already.
        if phase in ("watching", "held") or (phase == "starting" and self.started_at is None):
            return None
        return phase == "serving"


def begin(record: GenerationRecord, memory: GenerationMemory, now: float) -> GenerationState:
    """The state of a supervisor that was just started."""
    status = Status("watching", "it was not checked yet", now)
    if memory.gave_up:
        status = Status("gave_up", memory.gave_up, now)
    return GenerationState(record, memory, status, acted_at=now, decided_at=now)


def decide(
    state: GenerationState, observed: Observation, now: float
) -> tuple[GenerationState, tuple[Action, ...]]:
    """The next state, and what is to be done: events, and one other action at most."""
    turn = _Turn(state, observed, now)
    turn.take()
    return turn.state, tuple(turn.actions)


class _Turn:
    """One decision; `state` and `actions` are its result."""

    def __init__(self, state: GenerationState, observed: Observation, now: float) -> None:
        self.state, self._observed, self._now = state, observed, now
        self.actions: list[Action] = []
        self._every = tuple(range(len(observed.ranks)))
        # Of a node that does not answer, or can do nothing now, nothing is known.
        self._known = {
            rank: seen for rank, seen in enumerate(observed.ranks) if seen is not None and not seen.problem
        }

    def take(self) -> None:
        """Decide."""
        if self._now - self.state.decided_at > _GAP_S:
            self._change(silent_since=self._now)
        self._change(decided_at=self._now)
        if self._observed.resume and self.state.memory.gave_up:
            self._resume()
        if changing := self._changing():
            self._leave_alone(changing)
        elif self.state.failure is not None:
            self._end(self.state.failure)
        elif self.state.status.phase in ("watching", "held"):
            self._adopt()
        elif self.state.status.phase in ("serving", "starting"):
            self._watch()
        elif self.state.status.phase == "down":
            self._restart()
        elif self._were_started():
            self._begin_to_watch(None)

    # -- what is found --------------------------------------------------------------------------

    def _changing(self) -> str:
        """Why the replica is left alone; "" where it is not."""
        for rank, seen in enumerate(self._observed.ranks):
            if seen is not None and seen.held:
                return f"it is being changed on {self._rank(rank)}"
            if rank in self._known and self._known[rank].generation != self.state.record.generation:
                what = "another version of it" if self._known[rank].generation else "no container"
                return f"{self._rank(rank)} has {what}"
        return ""

    def _unknown(self) -> str:
        """The ranks whose nodes do not answer or can do nothing now, as text; "" where there are none."""
        ranks = enumerate(self._observed.ranks)
        blocked = [f"{self._rank(rank)}: {seen.problem}" for rank, seen in ranks if seen and seen.problem]
        if blocked:
            return "; ".join(blocked)
        return f"waiting for {self._silent}" if self._silent else ""

    @property
    def _silent(self) -> str:
        """The ranks whose nodes do not answer, as text."""
        return ", ".join(self._rank(rank) for rank, seen in enumerate(self._observed.ranks) if seen is None)

    def _ended(self) -> dict[int, str]:
        """Why, by rank, for those that do not run, or that somebody else has started."""
        ended = {rank: _why(seen) for rank, seen in self._known.items() if not seen.running}
        if self.state.watched_since is not None:
            again = [rank for rank, start in enumerate(self.state.starts) if start and self._is_new(rank)]
            ended |= dict.fromkeys(again, "it was started without the others")
        return ended

    def _is_new(self, rank: int) -> bool:
        """Whether the rank runs, and not since the start that is known of it."""
        seen = self._known.get(rank)
        start = self.state.starts[rank] if self.state.starts else ""
        return seen is not None and seen.running and seen.start != start

    def _were_started(self) -> bool:
        """Whether somebody has started all ranks by hand since they ended."""
        return all(self._is_new(rank) for rank in self._every)

    # -- somebody else works on it ----------------------------------------------------------------

    def _leave_alone(self, text: str) -> None:
        self._change(step="idle", failure=None, watched_since=None)
        if self.state.status.phase != "held":
            self._become("held", text)
        self._wait(text)

    def _resume(self) -> None:
        self._emit("resumed", "a person asked to try again")
        self._remember(gave_up="", early_ends=0, failed_starts=0)
        if self.state.status.phase == "gave_up":
            self._become("down", self.state.memory.last_reason)

    # -- ranks that run --------------------------------------------------------------------------

    def _adopt(self) -> None:
        """Take the ranks as they are, or bring them back. What runs beside a silent node may well serve."""
        ended = self._ended()
        if self.state.memory.gave_up and (ended or len(self._known) < len(self._every)):
            self._become("gave_up", self.state.memory.gave_up)
        elif not self._known:
            self._become("watching", self._unknown())
        elif not ended:
            self._begin_to_watch(None)
        elif len(ended) == len(self._known) < len(self._every):
            self._change(acted_at=self._now)
            self._become("down", self._unknown())
        else:
            self._fail_for(ended)

    def _begin_to_watch(self, started_at: float | None) -> None:
        starts = tuple(self._known[rank].start if rank in self._known else "" for rank in self._every)
        self._change(
            starts=starts, watched_since=self._now, silent_since=self._now, started_at=started_at, step="idle"
        )
        if self.state.memory.gave_up:
            self._remember(gave_up="", early_ends=0, failed_starts=0)
        if self.state.memory.refused_starts:
            self._remember(refused_starts=0)
        self._become("starting", "the ranks load and connect")

    def _watch(self) -> None:
        """A rank that ended or was started by somebody else, and an engine that hangs, end the replica."""
        health, record = self._observed.health, self.state.record
        if health is None:
            raise RuntimeError("a replica is watched without its engine")
        if ended := self._ended():
            self._fail_for(ended)
            return
        starts = enumerate(self.state.starts)
        self._change(
            starts=tuple(self._known[rank].start if rank in self._known else start for rank, start in starts)
        )
        starting = self.state.status.phase == "starting"
        silent_s = min(health.silent_s, self._now - self.state.silent_since)
        if starting and health.serves:
            self._serve()
        elif starting and silent_s > record.start_s:
            self._fail(0, f"it did not serve within {record.start_s:.0f} s")
        elif not starting and silent_s > record.hang_s:
            self._fail(0, f"the engine hangs: it computed nothing and answered nothing for {silent_s:.0f} s")
        elif not starting:
            self._note_service()

    def _serve(self) -> None:
        if self.state.started_at is not None:
            took = self._now - self.state.started_at
            self._emit("serving", f"it serves again, {took:.0f} s after its start")
            self._remember(start_s=took)
        if self.state.memory.failed_starts:
            self._remember(failed_starts=0)
        self._change(acted_at=self._now)
        self._become("serving", "")

    def _note_service(self) -> None:
        """A node that does not answer while the engine computes is no reason to end what works."""
        if self.state.memory.early_ends and self._has_settled:
            self._remember(early_ends=0)
        text = f"{self._silent} does not answer; the engine computes" if self._silent else ""
        self._change(status=replace(self.state.status, text=text))

    # -- the end of the replica ------------------------------------------------------------------

    def _fail_for(self, ended: Mapping[int, str]) -> None:
        """End the replica for the rank, of those that ended, that is most likely the cause."""
        rank = min(ended, key=lambda rank: not any(cause in ended[rank] for cause in _CAUSES))
        self._fail(rank, f"{self._rank(rank)}: {ended[rank]}")

    def _fail(self, rank: int, reason: str) -> None:
        self._change(failure=Failure(rank, reason))
        self.actions.append(ReadLogs())

    def _end(self, failure: Failure) -> None:
        """End the replica as a whole; an end that comes early is counted."""
        phase, memory = self.state.status.phase, self.state.memory
        self._emit("ended", failure.reason, rank=failure.rank, logs=self._observed.logs)
        early = phase == "starting" or (phase == "serving" and not self._has_settled)
        self._remember(
            last_reason=failure.reason,
            failed_starts=memory.failed_starts + (phase == "starting"),
            early_ends=memory.early_ends + early,
        )
        self._change(failure=None, watched_since=None, step="idle", acted_at=self._now)
        if self.state.memory.is_too_much:
            text = f"{MOST_FAILED_STARTS} starts in a row failed. The last one: {failure.reason}"
            self._remember(gave_up=text)
            self._emit("gave_up", text)
            self._become("gave_up", text)
        else:
            self._become("down", failure.reason)
        self.actions.append(Stop(self._every))

    # -- the next start --------------------------------------------------------------------------

    def _restart(self) -> None:
        """Stop what is left, then start rank 0 and the others, as soon as every node answers."""
        step = self.state.step
        self._change(step="idle")
        if step != "idle" and (refused := self._refusal(step)):
            self._refuse(refused)
        elif step == "head" and not self._known[0].running:
            self._become("starting", "rank 0 starts")
            self._fail_for(self._ended())
        elif step == "head" and (others := head_first(self._every, int)[1:]):
            self._change(step="others")
            self.actions.append(Start(*others))
        elif step in ("head", "others"):
            self._begin_to_watch(self.state.started_at)
        elif step == "idle" and self._were_started():
            self._begin_to_watch(None)
        elif self._now - self.state.acted_at >= self.state.memory.pause_s or step == "stopping":
            self._start_head()

    def _start_head(self) -> None:
        running = tuple(rank for rank in self._every if self._runs(rank))
        if unknown := self._unknown():
            self._wait(unknown)
        elif running:
            names = ", ".join(self._rank(rank) for rank in running)
            self._emit("stopping", f"still running, and stopped before the start: {names}")
            self._change(step="stopping")
            self.actions.append(Stop(running))
        else:
            self._emit("starting", "the ranks are started, the head first")
            self._remember(restarts=self.state.memory.restarts + 1)
            self._change(step="head", started_at=self._now)
            self.actions.append(Start(head_first(self._every, int)[0]))

    def _refusal(self, step: str) -> str:
        """Why what was asked for was not done; "" where it was."""
        done = "stopped" if step == "stopping" else "started"
        if not self._observed.answers:
            return f"the ranks cannot be {done}"
        for rank, seen in self._observed.answers.items():
            if seen is None or seen.problem:
                return f"{self._rank(rank)} cannot be {done}: {_why(seen)}"
        if step == "head" and 0 not in self._known:
            return f"{self._rank(0)} cannot be read: {_why(self._observed.ranks[0])}"
        others = {"stopping": self._every, "head": self._every[1:]}.get(step, ())
        if running := [rank for rank in others if self._runs(rank)]:
            return f"{self._rank(running[0])} runs, although it was stopped"
        return ""

    def _refuse(self, text: str) -> None:
        """Wait longer each time, without an end: an attempt a minute costs nothing, and disks are freed."""
        self._change(acted_at=self._now)
        self._remember(refused_starts=self.state.memory.refused_starts + 1)
        times, pause_s = self.state.memory.refused_starts, self.state.memory.pause_s
        self._emit("refused", f"{text} ({times} times in a row; the next attempt in {pause_s:.0f} s)")
        self._change(status=replace(self.state.status, text=text))
        self.actions.append(Stop(self._every))

    # -- the state -------------------------------------------------------------------------------

    @property
    def _has_settled(self) -> bool:
        return self._now - self.state.acted_at >= SETTLED_S

    def _runs(self, rank: int) -> bool:
        return rank in self._known and self._known[rank].running

    def _rank(self, rank: int) -> str:
        return f"rank {rank} ({self.state.record.ranks[rank]})"

    def _wait(self, text: str) -> None:
        if text != self.state.status.text:
            self._emit("waiting", text)
            self._change(status=replace(self.state.status, text=text))

    def _become(self, phase: Phase, text: str) -> None:
        if (phase, text) != (self.state.status.phase, self.state.status.text):
            self._change(status=Status(phase, text, self._now))

    def _emit(
        self, kind: str, text: str, rank: int = 0, logs: Mapping[int, Sequence[str]] | None = None
    ) -> None:
        self.actions.append(Emit(kind, text, rank, logs or {}))

    def _change(self, **changes: object) -> None:
        self.state = replace(self.state, **changes)  # type: ignore[arg-type]

    def _remember(self, **changes: object) -> None:
        self._change(memory=replace(self.state.memory, **changes))  # type: ignore[arg-type]


def _why(seen: Seen | None) -> str:
    if seen is None:
        return "its node does not answer"
    return seen.problem or seen.ended or "it was started without the others"
