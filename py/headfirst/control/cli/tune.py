"""`deploy tune`: which engine arguments make this service faster."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Literal

import typer
from rich.markup import escape

from headfirst.common.errors import InputError
from headfirst.control.cli import bench_load, login_options, options
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.terminal import Terminal

EXAMPLE = "Example: deploy tune cluster.ini --shape chat --concurrency 16 --yes"


@login_options.accepted
def run(
    inventory: options.InventoryArgument = None,
    inventory_option: options.InventoryOption = None,
    extra_vars: options.ExtraVars = None,
    goal: Annotated[
        Literal["throughput", "ttft", "tpot"],
        typer.Option("--goal", help="What to improve: output tokens/s, or a time's p95."),
    ] = "throughput",
    shape: bench_load.Shape = "chat",
    dataset: bench_load.Dataset = None,
    concurrency: Annotated[
        str | None,
        typer.Option(
            "--concurrency", metavar="N", help="Concurrent requests. Default: 16.", show_default=False
        ),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(
            "--rate", metavar="N", help="Requests a second, instead of --concurrency.", show_default=False
        ),
    ] = None,
    requests: bench_load.Requests = None,
    seconds: bench_load.Seconds = None,
    warmup: bench_load.Warmup = None,
    seed: bench_load.Seed = 0,
    repeats: Annotated[
        int, typer.Option("--repeats", min=2, max=20, help="Measurements of each; their spread is the noise.")
    ] = 3,
    most: Annotated[int, typer.Option("--most", min=1, max=50, help="Candidates at most.")] = 12,
    write: Annotated[
        bool, typer.Option("--write", help="Write the best arguments into the inventory.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Restart the service for each candidate.")] = False,
    as_json: options.Json = False,
) -> None:
    """Try engine arguments one at a time with the same requests, and report which are better.

    The service is restarted for each candidate, and at the end with the inventory's arguments.
    """
    from headfirst.control.cli.shown import tune as shown
    from headfirst.control.deployment.measuring.tune import Wishes, intended, tune
    from headfirst.control.deployment.measuring.written import line_of, write_arguments
    from headfirst.control.run.reporters.plain import PlainReporter

    usual = None if rate else "16"
    wanted = bench_load.wanted(shape, dataset, concurrency or usual, rate, requests, seconds, warmup, seed)
    if len(wanted.loads) > 1:
        raise InputError("arguments are compared at one load", hint="Give one --concurrency or one --rate.")
    chosen = RunOptions(options.inventories(inventory, inventory_option), extra_vars or [])
    wishes = Wishes(wanted, goal, repeats, most)
    plan = intended(chosen, wishes)
    console = Terminal(highlight=False, soft_wrap=True, stderr=as_json)
    shown.print_intended(plan, wishes, console)
    if not yes:
        raise InputError(
            "the service is restarted for each candidate and does not answer meanwhile",
            where="deploy tune",
            hint="Add --yes to start.",
        )
    with shown.watcher(console, wishes) as watcher, PlainReporter(sys.stderr) as reporter:
        found, folder = tune(chosen, wishes, plan, watcher, reporter)
    given = plan.service.settings.engine_args
    best = found.best_arguments(given)
    if as_json:
        words = {"folder": str(folder), "engine_args": best}
        typer.echo(json.dumps({**words, **found.model_dump(mode="json")}, indent=2, allow_nan=False))
    else:
        shown.print_tuned(found, console)
        if best is not None:
            console.print(f"  In the inventory: {escape(line_of(best))}")
        console.print(f"  Result   {escape(str(folder))}")
    if write and best is not None:
        file = write_arguments(chosen.inventories, best)
        console.print(f"Written to {escape(str(file))}; `deploy up` applies it.")
