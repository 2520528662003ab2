"""Keeps the ranks of one replica alive together. It runs on the node of rank 0, which no other node replaces.

The ranks meet at rank 0, so a replica has one head by its very form: the host whose container has rank 0. Its
supervisor decides alone; the others carry out what it asks. It acts only where every rank answers with the
same generation, so that a node that is cut off cannot start a part of a replica. What it does is decided in
`decision.py`; here it observes, and carries out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from headfirst.node.supervisor import host_state
from headfirst.node.supervisor.decision import (
    Action,
    Emit,
    HealthReading,
    Observation,
    ReadLogs,
    Start,
    Stop,
    begin,
    decide,
)
from headfirst.node.supervisor.events import Events
from headfirst.node.supervisor.health import Health
from headfirst.node.supervisor.memory import Memories
from headfirst.node.supervisor.messages import Seen
from headfirst.node.supervisor.nodes import Ranks
from headfirst.node.supervisor.records import GenerationRecord

# Decisions that follow each other at once: logs, two stops and two starts are five.
_MOST_DECISIONS = 8


class Keeper:
    """One generation of a replica. `step` is called about once a second."""

    def __init__(
        self,
        record: GenerationRecord,
        ranks: Ranks,
        health: Callable[[GenerationRecord], Health],
        events: Events,
        memories: Memories,
    ) -> None:
        self.record, self._ranks, self._new_health = record, ranks, health
        self._events, self._memories = events, memories
        self._saved = memories.load(record.name, record.generation)
        self.state = begin(record, self._saved, host_state.uptime())
        self._health: Health | None = None
        self._watched_since: float | None = None
        self._answers: Mapping[int, Seen | None] = {}
        self._logs: Mapping[int, Sequence[str]] = {}

    def step(self) -> None:
        """Read all ranks and do what is due."""
        for _decision in range(_MOST_DECISIONS):
            observed, self._answers, self._logs = self._observe(), {}, {}
            self.state, actions = decide(self.state, observed, host_state.uptime())
            self._save()
            self._watch_engine()
            for action in actions:
                self._perform(action)
            if not (self._answers or self._logs):
                return

    def close(self) -> None:
        """Stop keeping; the ranks go on."""
        if self._health:
            self._health.close()
        self._ranks.close()

    def _observe(self) -> Observation:
        health = self._health
        return Observation(
            ranks=tuple(self._ranks.look()),
            health=HealthReading(health.serves, health.silent_s) if health else None,
            answers=self._answers,
            logs=self._logs,
            resume=self._memories.was_asked(self.record.name),
        )

    def _perform(self, action: Action) -> None:
        match action:
            case Stop(ranks):
                self._answers = dict(zip(ranks, self._ranks.stop(ranks), strict=True))
            case Start(ranks):
                self._answers = dict(zip(ranks, self._ranks.start(ranks), strict=True))
            case ReadLogs():
                self._logs = dict(enumerate(self._ranks.logs()))
            case Emit(kind, text, rank, logs):
                name, generation = self.record.name, self.record.generation
                self._events.add(name, kind, text, generation=generation, rank=rank, logs=logs)

    def _save(self) -> None:
        """Written again each second while the disk is full; what is read back is never what counts."""
        memory = self.state.memory
        if memory != self._saved and self._memories.save(self.record.name, memory):
            self._saved = memory

    def _watch_engine(self) -> None:
        if self.state.watched_since == self._watched_since:
            return
        if self._health:
            self._health.close()
        self._watched_since = self.state.watched_since
        self._health = self._new_health(self.record) if self._watched_since is not None else None
