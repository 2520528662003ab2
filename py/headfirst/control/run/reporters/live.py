"""The run on a terminal: the current stage as a live table, one line a host; ended stages as one line."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from headfirst.control.run import events
from headfirst.control.run.amounts import amount, duration, speed
from headfirst.control.run.reporters.reporter import STILL_S, Reporter


class HostActivity(Enum):
    """What a host is doing, and its style: what is shown first where not all hosts are."""

    FAILED = "red"
    WORKING = ""
    WAITING = "dim"  # done with its task, another host is not


@dataclass
class ProgressRow:
    """One host in the current stage; on the board's clock its task began `since`, its progress is of `at`."""

    host: str
    state: HostActivity = HostActivity.WAITING
    text: str = ""
    since: float = 0.0
    changed: int = 0
    progress: events.Progress | None = None
    at: float = 0.0


class ProgressBoard:
    """Rows in the order in which hosts appear; emptied by the next stage."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.stage = ""
        self.title = ""
        self.since = 0.0
        self.left_seconds: float | None = None  # of the whole command when the stage began
        self.rows: dict[str, ProgressRow] = {}

    def apply(self, event: events.Event) -> None:
        """Take one event in."""
        match event:
            case events.StageStarted():
                self.stage, self.title, self.since = event.stage, event.title, self.clock()
                self.left_seconds = event.left_seconds
                self.rows = {}
            case events.TaskStarted():
                row = self._row(event.host)
                row.state, row.text, row.since = HostActivity.WORKING, event.task, self.clock()
                row.progress = None
            case events.Progress():
                row = self._row(event.host)
                row.progress, row.at = event, self.clock()
            case events.TaskDone():
                row = self._row(event.host)
                row.state, row.progress = HostActivity.WAITING, None
                row.changed += event.changed
            case events.HostFailed():
                row = self._row(event.host)
                row.state, row.progress = HostActivity.FAILED, None
                row.text = f"{event.task}: {event.message}".splitlines()[0]

    def visible(self, limit: int) -> tuple[list[ProgressRow], int]:
        """At most `limit` rows, in their order, and how many are left out: failed and working ones stay."""
        rows = list(self.rows.values())
        if len(rows) <= limit:
            return rows, 0
        urgency = list(HostActivity)
        chosen = sorted(rows, key=lambda row: urgency.index(row.state))[:limit]
        names = {row.host for row in chosen}
        return [row for row in rows if row.host in names], len(rows) - len(chosen)

    def _row(self, host: str) -> ProgressRow:
        return self.rows.setdefault(host, ProgressRow(host, since=self.clock()))


# Lines that the live table leaves to the stage's header, the note on left-out hosts, and the prompt.
_OTHER_LINES = 4
_BAR_WIDTH = 20


class LiveReporter(Reporter):
    """Draws the board about ten times a second; lines about what ended scroll away above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._board = ProgressBoard()
        self._spinner = Spinner("dots")
        self._live = Live(console=self._console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def handle(self, event: events.Event) -> None:
        """Take an event in; what ended is printed for good."""
        self._board.apply(event)
        match event:
            case events.StageDone():
                self._print_stage(event)
            case events.HostFailed():
                kind = "does not answer" if event.unreachable else "failed"
                message = event.message.splitlines()[0]
                self._print(f"[red]✗ {event.host} {kind}[/]: {escape(event.task)}: {escape(message)}")
            case events.FindingsReported():
                # Errors end the run, and its last paragraph lists them all.
                for finding in event.findings:
                    if finding.severity != "error":
                        self._print(f"[yellow]![/] {escape(f'{finding.host}: {finding.text}')}")
            case events.RunDone(cancelled=True):
                self._print(f"[yellow]Stopped[/] after {duration(event.seconds)}")

    def tick(self) -> None:
        """Draw the table again."""
        self._live.update(self._draw() if self._board.stage else Text(), refresh=True)

    def _print(self, markup: str) -> None:
        self._console.print(markup, highlight=False)

    def _print_stage(self, event: events.StageDone) -> None:
        mark = "[red]✗[/]" if event.failed_hosts else "[green]✓[/]" if event.completed else "[yellow]–[/]"
        changed = f"{event.changed} changed" if event.changed else "no change"
        title = escape(self._board.title)
        self._board.stage = ""
        self._print(
            f"{mark} [bold]{escape(event.stage):<8}[/] {title}  [dim]{changed}, {duration(event.seconds)}[/]"
        )

    def _draw(self) -> RenderableType:
        board = self._board
        now = board.clock()
        header = Table.grid(padding=(0, 1))
        header.add_row(
            self._spinner,
            Text(f"{board.stage:<8}", style="bold"),
            Text(board.title),
            Text(self._times(now), style="dim"),
        )
        rows, hidden = board.visible(max(1, self._console.height - _OTHER_LINES))
        table = Table.grid(padding=(0, 1), expand=True)
        table.add_column(width=3, justify="right")
        table.add_column(no_wrap=True)
        table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        table.add_column(no_wrap=True, justify="right")
        for row in rows:
            table.add_row(self._mark(row), Text(row.host), *self._work(row, now))
        more = [Text(f"    and {hidden} more hosts", style="dim")] if hidden else []
        return Group(header, table, *more)

    def _times(self, now: float) -> str:
        """How long the stage has taken, and how long the command still takes by recorded runs."""
        spent = now - self._board.since
        rest = self._board.left_seconds
        if rest is None:
            return duration(spent)
        # A run that takes longer than the recorded ones has no time left that is known.
        return f"{duration(spent)}, about {duration(rest - spent)} left" if rest > spent else duration(spent)

    def _mark(self, row: ProgressRow) -> RenderableType:
        marks = {HostActivity.FAILED: "✗", HostActivity.WAITING: "·"}
        return Text(marks[row.state], style=row.state.value) if row.state in marks else self._spinner

    def _work(self, row: ProgressRow, now: float) -> tuple[RenderableType, RenderableType]:
        if row.progress is not None:
            return _long_work(row.progress, now - row.at)
        spent = now - row.since
        seconds = duration(spent) if row.state is HostActivity.WORKING and spent >= 1 else ""
        return Text(row.text, style=row.state.value), Text(seconds, style="dim")


def _long_work(state: events.Progress, old_s: float) -> tuple[RenderableType, RenderableType]:
    line = Text(f"{state.what} ")
    if state.total:
        filled = min(_BAR_WIDTH, _BAR_WIDTH * state.done // state.total)
        line.append("━" * filled, style="green")
        line.append("━" * (_BAR_WIDTH - filled) + " ", style="bright_black")
    if state.done or state.total:
        line.append(amount(state.done, state.total, state.unit))
    if state.note:  # last, because the end is what a narrow terminal cuts
        line.append(f" {state.note}", style="dim")
    if old_s >= STILL_S:
        return line, Text(f"nothing new for {duration(old_s)}", style="yellow")
    times = [speed(state.rate, state.unit)] if state.rate else []
    if state.eta is not None:
        times.append(f"{duration(state.eta)} left")
    return line, Text(", ".join(times), style="dim")
