"""Where the time of a run went, stage by stage."""

from __future__ import annotations

from rich.table import Table

from headfirst.control.run.amounts import duration
from headfirst.control.run.result import RunResult


def timing_table(result: RunResult) -> Table:
    """A row per stage with its time and share of the whole, and the total (Ansible's start included)."""
    table = Table(title="Where the time went", title_justify="left", box=None, pad_edge=False)
    table.add_column("stage")
    table.add_column("time", justify="right")
    table.add_column("share", justify="right")
    for stage in result.stages:
        table.add_row(stage.stage, duration(stage.seconds), f"{_share(stage.seconds, result.seconds)} %")
    table.add_row("[bold]total", f"[bold]{duration(result.seconds)}", "")
    return table


def _share(seconds: float, whole: float) -> int:
    return round(100 * seconds / whole) if whole else 0
