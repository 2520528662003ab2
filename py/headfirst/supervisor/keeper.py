"""Keeps the ranks of one replica alive together. It runs on the node of rank 0, which no other node replaces.

The ranks meet at rank 0, so a replica has one head by its very form: the host whose container has rank 0. Its
supervisor decides alone; the others carry out what it asks. It acts only where every rank answers with the
same generation, so that a node that is cut off cannot start a part of a replica.

    watching -> (a rank ends, or the engine hangs) -> down -> starting -> serving
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from headfirst.supervisor import clock
from headfirst.supervisor.events import Events
from headfirst.supervisor.memory import MOST_FAILED_STARTS, Memories, Memory
from headfirst.supervisor.messages import Seen
from headfirst.supervisor.records import Record

Phase = Literal["watching", "serving", "down", "starting", "held", "gave_up"]
# A replica that has served for so long is taken for one that works.
_SETTLED_S = 60.0
# Of ranks that ended together, one that was killed is the cause; the others lost their peer.
_CAUSES = ("killed: out of memory", "exit code 137", "exit code 139", "exit code 134")


class Health(Protocol):
    """Whether the engine of one start computes."""

    @property
    def serves(self) -> bool:
        """Whether it has answered since its start."""

    @property
    def silent_s(self) -> float:
        """Seconds since it computed last, or since its start."""

    def close(self) -> None:
        """Ask no more."""


class Ranks(Protocol):
    """The ranks of a replica; None stands for one whose node does not answer."""

    addresses: tuple[str, ...]

    def look(self) -> list[Seen | None]:
        """Every rank."""

    def stop(self, ranks: Sequence[int]) -> list[Seen | None]:
        """Stop these ranks; answers in their order."""

    def start(self, ranks: Sequence[int]) -> list[Seen | None]:
        """Start these ranks; answers in their order."""

    def log(self, rank: int) -> list[str]:
        """The last lines of a rank's log."""

    def close(self) -> None:
        """Ask no more."""


@dataclass(frozen=True)
class Status:
    """What `deploy status` shows. `since` is in seconds since boot."""

    phase: Phase
    text: str
    since: float


class Keeper:
    """One generation of a replica. `step` is called about once a second."""

    def __init__(
        self,
        record: Record,
        ranks: Ranks,
        health: Callable[[Record], Health],
        events: Events,
        memories: Memories,
    ) -> None:
        self.record, self._ranks, self._new_health = record, ranks, health
        self._events, self._memories = events, memories
        self.memory: Memory = memories.load(record.name, record.generation)
        self.status = Status("watching", "it was not checked yet", clock.uptime())
        self._health: Health | None = None
        self._starts: list[str] = []  # of the ranks that serve, or that were started to serve
        self._acted_at = clock.uptime()  # when the replica failed, or began to serve
        self._started_at: float | None = None  # when it was started here
        if self.memory.gave_up:
            self._become("gave_up", self.memory.gave_up)

    def step(self) -> None:
        """Read all ranks and do what is due."""
        seen = self._ranks.look()
        if changing := self._changing(seen):
            self._leave_alone(changing)
            return
        match self.status.phase:
            case "watching" | "held":
                self._adopt(seen)
            case "serving" | "starting":
                self._watch(seen)
            case "down":
                self._restart(seen)
            case "gave_up":
                self._notice_a_person(seen)

    def close(self) -> None:
        """Stop keeping; the ranks go on."""
        self._stop_watching()
        self._ranks.close()

    def _stop_watching(self) -> None:
        if self._health:
            self._health.close()
            self._health = None

    @property
    def serves(self) -> bool | None:
        """Whether requests may be sent to the replica; None while somebody else changes it."""
        if self.status.phase in ("watching", "held"):
            return None
        # Ranks that were found running may be serving already.
        adopting = self.status.phase == "starting" and self._started_at is None
        return None if adopting else self.status.phase == "serving"

    def _leave_alone(self, text: str) -> None:
        """Somebody changes the replica, or its nodes have different versions of it."""
        if self.status.phase != "held":
            self._stop_watching()
            self._become("held", text)
        self._set_text(text)

    def _adopt(self, seen: list[Seen | None]) -> None:
        """The first reading: take the ranks as they are, or bring them back."""
        if self._missing(seen):
            self._wait_for(seen)
        elif self._blocked(seen):
            return
        elif ended := [rank for rank, one in enumerate(seen) if not _runs(one)]:
            self._fail_for(ended, seen)
        else:
            self._begin_to_watch(seen)

    def _begin_to_watch(self, seen: list[Seen | None]) -> None:
        self._starts = [one.start for one in seen if one is not None]
        self._stop_watching()
        self._health = self._new_health(self.record)
        self._started_at = None
        self._become("starting", "the ranks load and connect")

    def _watch(self, seen: list[Seen | None]) -> None:
        """A rank that ended or was started by somebody else, and an engine that hangs, end the replica."""
        health = self._health
        if health is None:
            raise RuntimeError("a replica is watched without its engine")
        answering = [(rank, one) for rank, one in enumerate(seen) if one is not None and not one.problem]
        ended = [rank for rank, one in answering if not one.running or one.start != self._starts[rank]]
        if ended:
            self._fail_for(ended, seen)
            return
        starting = self.status.phase == "starting"
        if starting and health.serves:
            self._serve()
        elif starting and health.silent_s > self.record.start_s:
            self._fail(0, f"it did not serve within {self.record.start_s:.0f} s")
        elif not starting and health.silent_s > self.record.hang_s:
            text = f"the engine hangs: it computed nothing and answered nothing for {health.silent_s:.0f} s"
            self._fail(0, text)
        elif not starting:
            self._note_service(seen)

    def _serve(self) -> None:
        if self._started_at is not None:
            took = clock.uptime() - self._started_at
            self._event("serving", f"it serves again, {took:.0f} s after its start")
            self._remember(start_s=took)
        if self.memory.failed_starts:
            self._remember(failed_starts=0)
        self._acted_at = clock.uptime()
        self._become("serving", "")

    def _note_service(self, seen: list[Seen | None]) -> None:
        """A node that does not answer while the engine computes is no reason to end what works."""
        if self.memory.early_ends and self._has_settled:
            self._remember(early_ends=0)
        away = self._missing(seen)
        text = f"{away} does not answer; the engine computes" if away else ""
        if text != self.status.text:
            self.status = replace(self.status, text=text)

    def _fail_for(self, ended: Sequence[int], seen: list[Seen | None]) -> None:
        """End the replica for the rank, of those that ended, that is most likely the cause."""
        why = {rank: _why(seen[rank]) for rank in ended}
        rank = min(ended, key=lambda rank: not any(cause in why[rank] for cause in _CAUSES))
        self._fail(rank, f"{self._rank(rank)}: {why[rank]}")

    def _fail(self, rank: int, reason: str) -> None:
        """End the replica as a whole; an end that comes early is counted."""
        self._stop_watching()
        self._event("ended", reason, rank=rank, log=self._ranks.log(rank))
        phase, memory = self.status.phase, self.memory
        self._remember(
            last_reason=reason,
            failed_starts=memory.failed_starts + (phase == "starting"),
            early_ends=memory.early_ends
            + (phase == "starting" or (phase == "serving" and not self._has_settled)),
        )
        self._ranks.stop(range(len(self._ranks.addresses)))
        self._acted_at = clock.uptime()
        if self.memory.is_too_much:
            text = f"{MOST_FAILED_STARTS} starts in a row failed. The last one: {reason}"
            self._remember(gave_up=text)
            self._event("gave_up", text)
            self._become("gave_up", text)
        else:
            self._become("down", reason)

    def _restart(self, seen: list[Seen | None]) -> None:
        """Stop what is left, then start rank 0 and the others, as soon as every node answers."""
        if clock.uptime() - self._acted_at < self.memory.pause_s:
            return
        if self._missing(seen) or self._blocked(seen):
            self._wait_for(seen)
            return
        every = range(len(seen))
        stopped = self._ranks.stop([rank for rank in every if _runs(seen[rank])])
        if any(one is None or one.running for one in stopped):
            return
        self._event("starting", "the ranks are started, the head first")
        began = clock.uptime()
        started = self._ranks.start([0]) + self._ranks.start(every[1:])
        self._remember(restarts=self.memory.restarts + 1)
        for rank, one in enumerate(started):
            if one is None or one.problem or not one.running:
                # What keeps a container from its start, such as a full disk, is no failure of the engine.
                self._ranks.stop(every)
                self._acted_at = clock.uptime()
                self._set_text(f"{self._rank(rank)} cannot be started: {_why(one)}")
                return
        self._begin_to_watch(started)
        self._started_at = began

    def _notice_a_person(self, seen: list[Seen | None]) -> None:
        """Somebody may have asked to try again, or have started the ranks by hand."""
        self.memory = self._memories.load(self.record.name, self.record.generation)
        if not self.memory.gave_up:
            self._become("down", self.memory.last_reason)
        elif all(_runs(one) for one in seen):
            self._remember(early_ends=0, failed_starts=0, gave_up="")
            self._begin_to_watch(seen)

    def _wait_for(self, seen: list[Seen | None]) -> None:
        text = self._blocked(seen) or f"waiting for {self._missing(seen)}"
        if self.status.phase != "down":
            self._acted_at = clock.uptime()
            self._become("down", text)
        self._set_text(text)

    def _missing(self, seen: list[Seen | None]) -> str:
        """The ranks whose nodes do not answer, as text."""
        return ", ".join(self._rank(rank) for rank, one in enumerate(seen) if one is None)

    def _blocked(self, seen: list[Seen | None]) -> str:
        """Why a node that answers can do nothing now."""
        found = ((rank, one.problem) for rank, one in enumerate(seen) if one is not None and one.problem)
        return "; ".join(f"{self._rank(rank)}: {problem}" for rank, problem in found)

    def _changing(self, seen: list[Seen | None]) -> str:
        """Why the replica is left alone; "" where it is not."""
        for rank, one in enumerate(seen):
            if one is not None and one.held:
                return f"it is being changed on {self._rank(rank)}"
            if one is not None and not one.problem and one.generation != self.record.generation:
                what = "another version of it" if one.generation else "no container"
                return f"{self._rank(rank)} has {what}"
        return ""

    @property
    def _has_settled(self) -> bool:
        return clock.uptime() - self._acted_at >= _SETTLED_S

    def _rank(self, rank: int) -> str:
        return f"rank {rank} ({self._ranks.addresses[rank]})"

    def _set_text(self, text: str) -> None:
        if text != self.status.text:
            self._event("waiting", text)
            self.status = replace(self.status, text=text)

    def _become(self, phase: Phase, text: str) -> None:
        self.status = Status(phase, text, clock.uptime())

    def _remember(self, **changes: object) -> None:
        self.memory = replace(self.memory, **changes)  # type: ignore[arg-type]
        self._memories.save(self.record.name, self.memory)

    def _event(self, kind: str, text: str, *, rank: int = 0, log: Sequence[str] = ()) -> None:
        record = self.record
        self._events.add(record.name, kind, text, generation=record.generation, rank=rank, log=log)


def _runs(one: Seen | None) -> bool:
    return one is not None and one.running


def _why(one: Seen | None) -> str:
    if one is None:
        return "its node does not answer"
    return one.problem or one.ended or "it was started without the others"
