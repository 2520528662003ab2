"""Measurements on a terminal: progress, the table of a run, and tables that compare runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headfirst.control.bench.load import Load
from headfirst.control.bench.result import (
    BenchResult,
    BenchSubject,
    Percentiles,
    Point,
    PrefillSide,
    differences,
)
from headfirst.control.bench.slo import Capacity, Promise, broken
from headfirst.control.bench.trial import compare
from headfirst.control.deployment.measuring.bench import BenchWatcher, Workload
from headfirst.control.run.amounts import duration


@contextmanager
def watcher(console: Console, workload: Workload, *, as_json: bool) -> Iterator[BenchWatcher]:
    """What shows the run while it lasts: nothing with `as_json`."""
    if as_json:
        yield BenchWatcher()
        return
    loads = workload.loads
    planned = [(workload.number or load.usual_requests()) + load.usual_warmup() for load in loads]
    with BenchProgress(console, planned) as live:
        yield live


class BenchProgress(BenchWatcher):
    """Progress on a console. The spinner turns during a load only: between loads a playbook may print."""

    def __init__(self, console: Console, planned: Sequence[int]) -> None:
        self.console = console
        self._status = console.status("")
        self._later = list(planned)
        self._load: Load | None = None
        self._requests = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()

    def note(self, text: str) -> None:
        """A line above the progress."""
        self.console.print(escape(text), style="dim")

    def started(self, load: Load, requests: int) -> None:
        """The load beside the spinner."""
        self._load, self._requests = load, requests
        self._later = self._later[1:]
        self._status.update(f"{_what(load)}: {requests} requests …")
        self._status.start()

    def progress(self, done: int, seconds: float) -> None:
        """How many are done, and how long the rest takes at this pace."""
        rest_s = (self._requests - done + sum(self._later)) * seconds / done if done else 0.0
        name = _what(self._load) if self._load else ""
        self._status.update(f"{name}: {done} of {self._requests} requests, about {duration(rest_s)} left")

    def ended(self, measured: Point) -> None:
        """One line, which stays when the run is interrupted."""
        self._status.stop()
        failed = f", [red]{measured.failed} failed[/]" if measured.failed else ""
        self.console.print(
            f"{_what(measured.load)}: {measured.output_rate:.0f} tokens/s, TTFT p95 "
            f"{_time(measured.ttft, 'p95')}, TPOT p95 {_time(measured.tpot, 'p95')}{failed}"
        )


def print_result(result: BenchResult, console: Console) -> None:
    """What was measured, and its table."""
    subject = result.subject
    shape = result.dataset.split()[0] if result.dataset else result.shape.name
    console.print()
    console.print(
        f"[bold]{escape(subject.service)}[/], {escape(subject.engine)} {escape(subject.engine_version)}, "
        f"{_sizes(subject)}, {_where(subject)}; "
        f"{escape(shape)}, seed {result.seed}"
    )
    console.print(rates_table(result.points))
    console.print()
    console.print(times_table(result.points))
    for point in result.points:
        for reason, count in point.errors.items():
            console.print(f"[red]failed[/] at {point.load}: {count} × {escape(reason)}")
    console.print(
        f"[dim]The first of three times is the median. The way to the head and back takes "
        f"{_seconds(result.path_seconds)} and is part of each TTFT.[/]"
    )


def _sizes(subject: BenchSubject) -> str:
    sides: dict[str, PrefillSide | BenchSubject] = {"": subject}
    if subject.prefill:
        sides = {"prefill ": subject.prefill, "decode ": subject}
    return ", ".join(
        f"{name}TP {side.tensor_parallel} × PP {side.pipeline_parallel}" for name, side in sides.items()
    )


def _where(subject: BenchSubject) -> str:
    nodes, count = f"on {len(subject.hosts)} node(s)", len(subject.replicas)
    if not subject.is_routed:
        return nodes
    prefill = len(subject.prefill.replicas) if subject.prefill else 0
    replicas = f"{prefill} prefill and {count - prefill} decode" if prefill else f"{count}"
    return f"{replicas} replica(s) behind a router {nodes}"


def rates_table(points: Sequence[Point]) -> Table:
    """One row a load: how much was answered."""
    table = _table("load", "requests", "failed", "requests/s", "output tokens/s", "all tokens/s", "in+out")
    for point in points:
        table.add_row(
            str(point.load),
            str(point.requests),
            f"[red]{point.failed}[/]" if point.failed else "0",
            f"{point.request_rate:.2f}",
            f"{point.output_rate:.1f}",
            f"{point.total_rate:.1f}",
            f"{point.prompt_tokens:.0f}+{point.answer_tokens:.0f}",
        )
    return table


def times_table(points: Sequence[Point]) -> Table:
    """One row a load: how long answers took."""
    table = _table("load", *("TTFT ms", "p95", "p99"), *("TPOT ms", "p95", "p99"), *("E2E s", "p95", "p99"))
    for point in points:
        spreads = ((point.ttft, 1000.0), (point.tpot, 1000.0), (point.e2e, 1.0))
        table.add_row(str(point.load), *(text for spread, unit in spreads for text in _ranks(spread, unit)))
    return table


def _table(*names: str) -> Table:
    table = Table(box=None, header_style="bold")
    for name in names:
        table.add_column(name, justify="right")
    return table


def _ranks(spread: Percentiles | None, unit: float) -> list[str]:
    names = ("p50", "p95", "p99")
    return [_figure(getattr(spread, name) * unit) for name in names] if spread else ["–"] * len(names)


def _figure(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def print_comparison(old: BenchResult, new: BenchResult, console: Console, *, names: tuple[str, str]) -> None:
    """Ratios new ÷ old, load by load."""
    rows = compare(old.points, new.points)
    console.print()
    console.print(f"[bold]{escape(names[1])} ÷ {escape(names[0])}[/]")
    if not rows:
        console.print("No load was measured in both runs.")
        return
    table = _table("load", "tokens/s", "TTFT", "p95", "TPOT", "p95", "E2E", "p95", "failed")
    for row in rows:
        figures = (row.output_rate, row.ttft_p50, row.ttft_p95, row.tpot_p50, row.tpot_p95, row.e2e_p50)
        ratios = ["–" if figure is None else f"× {figure:.2f}" for figure in (*figures, row.e2e_p95)]
        table.add_row(str(row.load), *ratios, f"{row.failed[0]} → {row.failed[1]}")
    console.print(table)
    for name, (before, now) in differences(old, new).items():
        console.print(f"[yellow]The runs differ in {name}:[/] {escape(str(before))} → {escape(str(now))}")


def print_capacity(
    capacity: Capacity, points: Sequence[Point], promised: Sequence[Promise], console: Console
) -> None:
    """The highest load that keeps the promises, and what the next one breaks."""
    terms = ", ".join(map(str, promised))
    console.print()
    if capacity.highest is None:
        console.print(f"[red]No measured load keeps {terms}.[/]")
    else:
        console.print(
            f"[bold green]{_what(capacity.highest)}[/] keeps {terms}: the highest that was measured."
        )
    limits = [point for point in points if capacity.limit and point.load == capacity.limit]
    for point in limits:
        console.print(f"  {_what(point.load)} does not: {'; '.join(broken(point, promised))}.")
    if capacity.limit is None:
        console.print("  No measured load broke one: the service may carry more.")
    measured = ", ".join(str(point.load) for point in points)
    console.print(f"  Measured: {measured}.")


def _what(load: Load) -> str:
    return f"{load.value:g} at a time" if load.kind == "concurrency" else f"{load.value:g} a second"


def _time(spread: Percentiles | None, rank: str) -> str:
    return _seconds(getattr(spread, rank)) if spread else "–"


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.1f} ms"
