"""What a terminal shows of the current stage: one row a host. No drawing here (see live.py)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from headfirst.control.run.events import (
    Event,
    HostFailed,
    Progress,
    StageStarted,
    TaskDone,
    TaskStarted,
)


class State(Enum):
    """What a host is doing."""

    WORKING = "working"
    WAITING = "waiting"  # done with its task, another host is not
    FAILED = "failed"


@dataclass
class Row:
    """One host in the current stage; `since` is when its task began, on the board's clock."""

    host: str
    state: State = State.WAITING
    text: str = ""
    since: float = 0.0
    changed: int = 0
    progress: Progress | None = None


class Board:
    """Rows in the order in which hosts appear; emptied by the next stage."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.stage = ""
        self.title = ""
        self.since = 0.0
        self.left_seconds: float | None = None  # of the whole command when the stage began
        self.rows: dict[str, Row] = {}

    def apply(self, event: Event) -> None:
        """Take one event in."""
        match event:
            case StageStarted():
                self.stage, self.title, self.since = event.stage, event.title, self.clock()
                self.left_seconds = event.left_seconds
                self.rows = {}
            case TaskStarted():
                row = self._row(event.host)
                row.state, row.text, row.since = State.WORKING, event.task, self.clock()
                row.progress = None
            case Progress():
                self._row(event.host).progress = event
            case TaskDone():
                row = self._row(event.host)
                row.state, row.progress = State.WAITING, None
                row.changed += event.changed
            case HostFailed():
                row = self._row(event.host)
                row.state, row.progress = State.FAILED, None
                row.text = f"{event.task}: {event.message}".splitlines()[0]

    def visible(self, limit: int) -> tuple[list[Row], int]:
        """At most `limit` rows, in their order, and how many are left out: failed and working ones stay."""
        rows = list(self.rows.values())
        if len(rows) <= limit:
            return rows, 0
        weight = {State.FAILED: 0, State.WORKING: 1, State.WAITING: 2}
        chosen = sorted(rows, key=lambda row: weight[row.state])[:limit]
        names = {row.host for row in chosen}
        return [row for row in rows if row.host in names], len(rows) - len(chosen)

    def _row(self, host: str) -> Row:
        return self.rows.setdefault(host, Row(host, since=self.clock()))
