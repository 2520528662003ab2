"""The screen of `deploy top`: a table of replicas and a table of ranks, refreshed in the background."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timezone
from statistics import mean
from typing import ClassVar, NamedTuple

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.widgets import DataTable, Footer, Static
from textual.worker import get_current_worker

from headfirst.common.untrusted import for_terminal
from headfirst.control.live.gpus import GpuUse
from headfirst.control.live.load import EngineLoad
from headfirst.control.live.watch import RankRow, ReplicaRow, Snapshot

GIB = 2**30


class Cell(NamedTuple):
    """What a cell shows, and what it is sorted by; None is always last."""

    text: str
    key: float | str | None
    style: str = ""


# All columns fit into a terminal of 80.
REPLICA_COLUMNS = ("replica", "tokens/s", "read/s", "req/s", "running", "queued", "KV", "TTFT", "state")
RANK_COLUMNS = ("rank", "host", "state", "restarts", "since", "CPUs", "GiB")
# Of all GPUs of a rank; shown where a rank has one.
GPU_COLUMNS = ("GPU GiB", "use", "°C", "W")


class Top(App[None]):
    """`read` gives the next snapshot; it may take its time, and the screen goes on meanwhile."""

    TITLE = "deploy top"
    CSS = """
    #summary { background: $panel; }
    #problems { color: $error; }
    DataTable { height: auto; max-height: 40%; margin-bottom: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("q", "quit", "Quit"),
        ("s", "sort", "Sort by next column"),
        ("r", "reverse", "Reverse"),
        ("f", "filter", "Next service"),
    ]
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, read: Callable[[], Snapshot], interval: float, title: str) -> None:
        super().__init__()
        self._source = read
        self._interval = interval
        self._cluster = title
        self._shown = Snapshot((), ())
        self._service: str | None = None
        self._sorted = 0
        self._reversed = False
        self._looking = False
        self._rank_columns: tuple[str, ...] = RANK_COLUMNS

    def compose(self) -> ComposeResult:
        """What is shown, the two tables, the problems in full, the keys."""
        yield Static("", id="summary", markup=False)
        for name, columns in (("replicas", REPLICA_COLUMNS), ("ranks", RANK_COLUMNS)):
            table: DataTable[Text] = DataTable(id=name, cursor_type="row", zebra_stripes=True, cell_padding=0)
            for column in columns:
                table.add_column(f"{column} ", key=column)
            yield table
        yield Static("", id="problems", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """The first reading now, then one every interval."""
        self._draw()
        self._tick()
        self.set_interval(self._interval, self._tick)

    def _tick(self) -> None:
        if not self._looking:  # else the reading before has not ended
            self._looking = True
            self._look()

    @work(thread=True, exit_on_error=True)
    def _look(self) -> None:
        worker = get_current_worker()
        snapshot = self._source()
        if not worker.is_cancelled:
            self.call_from_thread(self._take, snapshot)

    def _take(self, snapshot: Snapshot) -> None:
        self._looking = False
        self._shown = snapshot
        if self.query("#summary"):  # when the program ends, its widgets are gone before the last reading ends
            self._draw()

    def action_sort(self) -> None:
        """By the next column of either table."""
        self._sorted = (self._sorted + 1) % len(REPLICA_COLUMNS + self._rank_columns)
        self._draw()

    def action_reverse(self) -> None:
        """The other way round."""
        self._reversed = not self._reversed
        self._draw()

    def action_filter(self) -> None:
        """Only the next service; after the last one all."""
        choices = [None, *dict.fromkeys(row.service for row in self._shown.replicas)]
        now = choices.index(self._service) if self._service in choices else 0
        self._service = choices[(now + 1) % len(choices)]
        self._draw()

    def _draw(self) -> None:
        replicas = [row for row in self._shown.replicas if self._service in (None, row.service)]
        ranks = [row for row in self._shown.ranks if self._service in (None, row.service)]
        if self._rank_columns == RANK_COLUMNS and any(row.gpus for row in self._shown.ranks):
            self._rank_columns = RANK_COLUMNS + GPU_COLUMNS
            for column in GPU_COLUMNS:
                self.query_one("#ranks", DataTable).add_column(f"{column} ", key=column)
        self.query_one("#problems", Static).update(_problems(replicas, ranks))
        by = (*REPLICA_COLUMNS, *self._rank_columns)[self._sorted]
        self.query_one("#summary", Static).update(self._summary(replicas, ranks, by))
        in_ranks = self._sorted >= len(REPLICA_COLUMNS)
        several = len({row.service for row in self._shown.replicas}) > 1
        rows = [_replica(row, several=several) for row in replicas]
        self._fill("replicas", REPLICA_COLUMNS, rows, None if in_ranks else by)
        shown = [_rank(row, several=several)[: len(self._rank_columns)] for row in ranks]
        self._fill("ranks", self._rank_columns, shown, by if in_ranks else None)

    def _summary(self, replicas: Sequence[ReplicaRow], ranks: Sequence[RankRow], by: str) -> str:
        loads = [row.load for row in replicas if row.load]
        running = sum(row.state == "running" for row in ranks)
        return for_terminal(
            f"{self._cluster}: {self._service or 'all services'}, {running} of {len(ranks)} ranks run, "
            f"{_total(loads)}; sorted by {by}{' (reversed)' if self._reversed else ''}"
        )

    def _fill(
        self, name: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], by: str | None
    ) -> None:
        table: DataTable[Text] = self.query_one(f"#{name}", DataTable)
        cursor = table.cursor_row
        table.clear()
        for row in rows if by is None else self._ordered(rows, columns.index(by)):
            table.add_row(*(Text(f"{for_terminal(cell.text)} ", cell.style) for cell in row))
        table.move_cursor(row=cursor)

    def _ordered(self, rows: Sequence[Sequence[Cell]], column: int) -> Iterator[Sequence[Cell]]:
        with_key = [row for row in rows if row[column].key is not None]
        yield from sorted(with_key, key=lambda row: _key(row[column]), reverse=self._reversed)
        yield from (row for row in rows if row[column].key is None)


def _key(cell: Cell) -> float | str:
    return "" if cell.key is None else cell.key


def _number(value: float | None, text: str) -> Cell:
    return Cell("" if value is None else text.format(value), value)


def _replica(row: ReplicaRow, *, several: bool) -> list[Cell]:
    """The cells of a replica; `several`: with the service, of several."""
    figures = [Cell("", None)] * 7 if row.load is None else _load(row.load)
    state = Cell("problem", row.problem, "red") if row.problem else Cell("answers", "answers", "green")
    name = f"{row.service}/{row.index}" if several else str(row.index)
    return [
        Cell(f"{name} {row.role}" if row.role else name, f"{row.service}/{row.index:05}"),
        *figures,
        state,
    ]


def _problems(replicas: Sequence[ReplicaRow], ranks: Sequence[RankRow]) -> str:
    """A line for each row with a problem: the tables have no room for its text."""
    listed = [(f"{row.service}/{row.index}", row.problem) for row in replicas]
    listed += [(f"{row.service}/{row.index} rank {row.rank} on {row.host}", row.problem) for row in ranks]
    return "\n".join(for_terminal(f"{name}: {problem}") for name, problem in listed if problem)


def _total(loads: Sequence[EngineLoad]) -> str:
    """The load of all replicas that give figures."""
    if not loads:
        return "load unknown"
    waiting = _sum(load.queued for load in loads)
    queued = "?" if waiting is None else f"{waiting:.0f}"
    tokens = sum(load.generated_tokens_per_s for load in loads)
    return f"{sum(load.running for load in loads)} running, {queued} queued, {tokens:.1f} tokens/s"


def _load(load: EngineLoad) -> list[Cell]:
    return [
        _number(load.generated_tokens_per_s, "{:.1f}"),
        _number(load.prompt_tokens_per_s, "{:.1f}"),
        _number(load.requests_per_s, "{:.2f}"),
        _number(load.running, "{}"),
        _number(load.queued, "{}"),
        _number(load.cache_usage, "{:.0%}"),
        _number(load.first_token_s, "{:.2f} s"),
    ]


def _rank(row: RankRow, *, several: bool) -> list[Cell]:
    """The cells of a rank, `since` in UTC; `several`: with the service, of several."""
    today = row.started_at[:10] == datetime.now(timezone.utc).date().isoformat()
    name = f"{row.index}/{row.rank}"
    return [
        Cell(f"{row.service}/{name}" if several else name, f"{row.service}/{row.index:05}/{row.rank:05}"),
        Cell(row.host, row.host),
        Cell(row.state, row.state, "red" if row.problem or row.state != "running" else "green"),
        Cell("?" if row.restarts is None else f"{row.restarts}", row.restarts),
        Cell(row.started_at[11:16] if today else row.started_at[5:10], row.started_at or None),
        _number(row.cpus, "{:.1f}"),
        _number(row.memory_bytes and row.memory_bytes / GIB, "{:.1f}"),
        *_gpus(row.gpus),
    ]


def _gpus(listed: Sequence[GpuUse]) -> list[Cell]:
    """Memory and power of all of them, their mean use, and the temperature of the hottest."""
    used, total = (
        _sum(getattr(gpu, name) for gpu in listed) for name in ("memory_used_bytes", "memory_total_bytes")
    )
    use = [gpu.use for gpu in listed if gpu.use is not None]
    celsius = [gpu.celsius for gpu in listed if gpu.celsius is not None]
    memory = Cell("", None)
    if used is not None and total is not None:
        memory = Cell(f"{used / GIB:.0f}/{total / GIB:.0f}", used)
    return [
        memory,
        _number(mean(use) if use else None, "{:.0f}%"),
        _number(max(celsius, default=None), "{}"),
        _number(_sum(gpu.watts for gpu in listed), "{:.0f}"),
    ]


def _sum(values: Iterable[float | None]) -> float | None:
    """None where one is not known, and where there is none."""
    listed = [*values]
    numbers = [value for value in listed if value is not None]
    return sum(numbers) if numbers and len(numbers) == len(listed) else None
