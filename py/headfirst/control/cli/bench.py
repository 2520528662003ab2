"""`deploy bench`: how fast the running service answers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from headfirst.common.errors import HeadfirstError, InputError
from headfirst.control.cli import bench_load, login_options, options
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.terminal import Terminal

if TYPE_CHECKING:
    from headfirst.control.bench.result import Result
    from headfirst.control.deployment.measuring.bench import Outcome

EXAMPLE = "Example: deploy bench cluster.ini --shape chat --concurrency 1,8,32 --slo ttft=2s,tpot=50ms"


@login_options.accepted
def run(
    inventory: options.InventoryArgument = None,
    inventory_option: options.InventoryOption = None,
    extra_vars: options.ExtraVars = None,
    service: options.Service = None,
    shape: bench_load.Shape = "chat",
    dataset: bench_load.Dataset = None,
    concurrency: bench_load.Concurrency = None,
    rate: bench_load.Rate = None,
    requests: bench_load.Requests = None,
    seconds: bench_load.Seconds = None,
    warmup: bench_load.Warmup = None,
    seed: bench_load.Seed = 0,
    promises: Annotated[
        str | None,
        typer.Option(
            "--slo",
            metavar="TIMES",
            help="Find the highest load whose p95 keeps these, as ttft=2s,tpot=50ms,e2e=30s.",
            show_default=False,
        ),
    ] = None,
    engine_list: Annotated[
        str | None,
        typer.Option(
            "--engines",
            metavar="NAME[=VERSION],…",
            help="Measure each of these engines on the same nodes, then restore the inventory's.",
            show_default=False,
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --engines: restart the service.")] = False,
    compared: Annotated[
        Path | None,
        typer.Option(
            "--compare", metavar="RUN", help="An earlier run: its folder or result.json.", show_default=False
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="DIR", help="Write the result there.", show_default=False),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Send requests of one shape at rising loads, and print throughput, latencies and errors.

    Exit code 0: measured; 1: requests failed, or no load keeps --slo; 3: the service is not ready.
    """
    from headfirst.control.bench.result import read
    from headfirst.control.bench.slo import promises as read_promises
    from headfirst.control.cli.shown import bench as shown
    from headfirst.control.deployment.measuring.bench import bench, draw

    wanted = bench_load.wanted(
        shape, dataset, concurrency, rate, requests, seconds, warmup, seed, read_promises(promises or "")
    )
    earlier = read(compared) if compared else None
    chosen = RunOptions(options.inventories(inventory, inventory_option), extra_vars or [], service=service)
    console = Terminal(highlight=False, soft_wrap=True)
    if engine_list:
        if earlier or promises:
            raise InputError(
                "--engines compares engines with each other", hint="Leave --compare and --slo out."
            )
        _engines(chosen, wanted, engine_list, output, console, yes=yes, as_json=as_json)
        return
    with bench_load.watcher(console, wanted, as_json=as_json) as watcher:
        outcome = bench(chosen, wanted, output, watcher)
    if earlier:
        draw(outcome.folder, [earlier, outcome.result])
    if as_json:
        typer.echo(json.dumps(_summary(outcome, earlier), indent=2, allow_nan=False))
    else:
        shown.print_result(outcome.result, console)
        if outcome.found:
            shown.print_found(outcome.found, outcome.result.points, wanted.promised, console)
        if earlier:
            shown.print_comparison(earlier, outcome.result, console, names=("earlier", "now"))
        console.print(f"  Result   {escape(str(outcome.folder))}")
    kept = outcome.found is None or outcome.found.highest is not None
    # A search goes on until requests fail.
    if not kept or (outcome.found is None and any(point.failed for point in outcome.result.points)):
        raise typer.Exit(HeadfirstError.exit_code)


def _summary(outcome: Outcome, earlier: Result | None) -> dict[str, Any]:
    from headfirst.control.bench.compare import compare

    found: dict[str, Any] = {"folder": str(outcome.folder), **outcome.result.model_dump(mode="json")}
    if outcome.found:
        found["slo"] = {
            "highest": outcome.found.highest and outcome.found.highest.value,
            "limit": outcome.found.limit and outcome.found.limit.value,
        }
    if earlier:
        rows = compare(earlier.points, outcome.result.points)
        found["compared"] = [row.model_dump(mode="json") for row in rows]
    return found


def _engines(
    chosen: RunOptions,
    wanted: Any,
    names: str,
    output: Path | None,
    console: Terminal,
    *,
    yes: bool,
    as_json: bool,
) -> None:
    from headfirst.control.cli.shown import bench as shown
    from headfirst.control.deployment.measuring.bench_engines import bench_engines, read_names
    from headfirst.control.run.reporters.plain import PlainReporter

    listed = read_names(names)
    if not yes:
        raise InputError(
            f"--engines restarts the service up to {len(listed) + 1} times, and it does not answer meanwhile",
            where="--engines",
            hint="Add --yes to confirm.",
        )
    with (
        bench_load.watcher(console, wanted, as_json=as_json) as watcher,
        PlainReporter(sys.stderr) as reporter,
    ):
        outcome = bench_engines(chosen, wanted, listed, output, watcher, reporter)
    if as_json:
        found = {
            "folder": str(outcome.folder),
            "runs": [one.model_dump(mode="json") for one in outcome.results],
        }
        typer.echo(json.dumps(found, indent=2, allow_nan=False))
        return
    for result in outcome.results:
        shown.print_result(result, console)
    first = outcome.results[0]
    for other in outcome.results[1:]:
        names_of = (first.subject.engine, other.subject.engine)
        shown.print_comparison(first, other, console, names=names_of)
    console.print(f"  Results   {escape(str(outcome.folder))}")
