"""`deploy bench` and `deploy tune`: how fast the running service answers, and what makes it faster."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape

from headfirst.common.errors import HeadfirstError, InputError
from headfirst.control.cli.verb import OutputFormat, verb
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.terminal import Terminal

if TYPE_CHECKING:
    from headfirst.control.bench.result import BenchResult
    from headfirst.control.bench.slo import Promise
    from headfirst.control.deployment.measuring.bench import BenchOutcome, Workload

_ShapeName = Literal["chat", "long-prompt", "long-answer", "shared-prefix"]
_Shape = Annotated[_ShapeName, typer.Option("--shape", help="Lengths of prompts and answers.")]
_Dataset = Annotated[
    Path | None,
    typer.Option(
        "--dataset",
        metavar="FILE",
        help="Prompts in place of the shape's: a line is text, a list of messages, or an object with both.",
    ),
]
_Requests = Annotated[
    int | None,
    typer.Option("--requests", min=1, help="Requests of each load. Default: 20 or more."),
]
_Seconds = Annotated[
    float | None,
    typer.Option("--seconds", min=0.1, help="Send requests for this time, instead of --requests."),
]
_Warmup = Annotated[
    int | None,
    typer.Option(
        "--warmup", min=0, help="Warm-up requests, not measured. Default: the concurrency.",
    ),
]  # fmt: skip
_Seed = Annotated[int, typer.Option("--seed", min=0, help="The same seed gives the same requests.")]


@verb(
    "deploy bench cluster.ini --shape chat --concurrency 1,8,32 --slo ttft=2s,tpot=50ms",
    *("service", "json"),
)
def bench(
    run: RunOptions,
    output: OutputFormat,
    shape: _Shape = "chat",
    dataset: _Dataset = None,
    concurrency: Annotated[
        str | None,
        typer.Option("--concurrency", metavar="N,…", help="Concurrent requests. Default: 1,4,16."),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option("--rate", metavar="N,…", help="Requests a second, instead of --concurrency."),
    ] = None,
    requests: _Requests = None,
    seconds: _Seconds = None,
    warmup: _Warmup = None,
    seed: _Seed = 0,
    slo: Annotated[
        str | None,
        typer.Option(
            "--slo",
            metavar="TIMES",
            help="Find the highest load whose p95 keeps these, as ttft=2s,tpot=50ms,e2e=30s.",
        ),
    ] = None,
    engines: Annotated[
        str | None,
        typer.Option(
            "--engines",
            metavar="NAME[=VERSION],…",
            help="Measure each of these engines on the same nodes, then restore the inventory's.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --engines: restart the service.")] = False,
    compare: Annotated[
        Path | None,
        typer.Option("--compare", metavar="RUN", help="An earlier run: its folder or result.json."),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="Write the result there.")
    ] = None,
) -> None:
    """Send requests of one shape at rising loads, and print throughput, latencies and errors.

    Exit code 0: measured; 1: requests failed, or no load keeps --slo; 3: the service is not ready.
    """
    from headfirst.control.bench.result import read
    from headfirst.control.bench.slo import promises
    from headfirst.control.cli.shown import bench as shown
    from headfirst.control.deployment.measuring.bench import bench, draw

    workload = _load(shape, dataset, concurrency, rate, requests, seconds, warmup, seed, promises(slo or ""))
    earlier = read(compare) if compare else None
    console = Terminal(highlight=False, soft_wrap=True)
    if engines:
        if earlier or slo:
            raise InputError(
                "--engines compares engines with each other", hint="Leave --compare and --slo out."
            )
        _engines(run, workload, engines, folder, console, yes=yes, as_json=output.as_json)
        return
    with shown.watcher(console, workload, as_json=output.as_json) as watcher:
        outcome = bench(run, workload, folder, watcher)
    if earlier:
        draw(outcome.folder, [earlier, outcome.result])
    if output.as_json:
        typer.echo(json.dumps(_summary(outcome, earlier), indent=2, allow_nan=False))
    else:
        shown.print_result(outcome.result, console)
        if outcome.capacity:
            shown.print_capacity(outcome.capacity, outcome.result.points, workload.promised, console)
        if earlier:
            shown.print_comparison(earlier, outcome.result, console, names=("earlier", "now"))
        console.print(f"  Result   {escape(str(outcome.folder))}")
    is_met = outcome.capacity is None or outcome.capacity.highest is not None
    # A search goes on until requests fail.
    if not is_met or (outcome.capacity is None and any(point.failed for point in outcome.result.points)):
        raise typer.Exit(HeadfirstError.exit_code)


@verb("deploy tune cluster.ini --shape chat --concurrency 16 --yes", "whole_service", "json")
def tune(
    run: RunOptions,
    output: OutputFormat,
    goal: Annotated[
        Literal["throughput", "ttft", "tpot"],
        typer.Option("--goal", help="What to improve: output tokens/s, or a time's p95."),
    ] = "throughput",
    shape: _Shape = "chat",
    dataset: _Dataset = None,
    concurrency: Annotated[
        str | None, typer.Option("--concurrency", metavar="N", help="Concurrent requests. Default: 16.")
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option("--rate", metavar="N", help="Requests a second, instead of --concurrency."),
    ] = None,
    requests: _Requests = None,
    seconds: _Seconds = None,
    warmup: _Warmup = None,
    seed: _Seed = 0,
    repeats: Annotated[
        int, typer.Option("--repeats", min=2, max=20, help="Measurements of each; their spread is the noise.")
    ] = 3,
    most: Annotated[int, typer.Option("--most", min=1, max=50, help="Candidates at most.")] = 12,
    write: Annotated[
        bool, typer.Option("--write", help="Write the best arguments into the inventory.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Restart the service for each candidate.")] = False,
) -> None:
    """Try engine arguments one at a time with the same requests, and report which are better.

    The service is restarted for each candidate, and at the end with the inventory's arguments.
    """
    from headfirst.control.cli.shown import tune as shown
    from headfirst.control.deployment.measuring.tune import Wishes, intended, tune
    from headfirst.control.deployment.measuring.written import line_of, write_arguments
    from headfirst.control.run.reporters.plain import PlainReporter

    usual = None if rate else "16"
    workload = _load(shape, dataset, concurrency or usual, rate, requests, seconds, warmup, seed)
    if len(workload.loads) > 1:
        raise InputError("arguments are compared at one load", hint="Give one --concurrency or one --rate.")
    wishes = Wishes(workload, goal, repeats, most)
    plan = intended(run, wishes)
    console = Terminal(highlight=False, soft_wrap=True, stderr=output.as_json)
    shown.print_intended(plan, wishes, console)
    if not yes:
        raise InputError(
            "the service is restarted for each candidate and does not answer meanwhile",
            where="deploy tune",
            hint="Add --yes to start.",
        )
    with shown.TuneProgress(console, []) as watcher, PlainReporter(sys.stderr) as reporter:
        tuned, folder = tune(run, wishes, plan, watcher, reporter)
    engine_args = plan.service.settings.engine_args
    best = tuned.best_arguments(engine_args)
    if output.as_json:
        words = {"folder": str(folder), "engine_args": best}
        typer.echo(json.dumps({**words, **tuned.model_dump(mode="json")}, indent=2, allow_nan=False))
    else:
        shown.print_tuned(tuned, console)
        if best is not None:
            console.print(f"  In the inventory: {escape(line_of(best))}")
        console.print(f"  Result   {escape(str(folder))}")
    if write and best is not None:
        file = write_arguments(run.inventories, best, plan.service.name, run.extra_vars)
        console.print(f"Written to {escape(str(file))}; `deploy up` applies it.")


def _load(
    shape: _ShapeName,
    dataset: Path | None,
    concurrency: str | None,
    rate: str | None,
    requests: int | None,
    seconds: float | None,
    warmup: int | None,
    seed: int,
    promised: Sequence[Promise] = (),
) -> Workload:
    """The options together. InputError where two exclude each other."""
    from headfirst.control.bench.load import SHAPES, loads
    from headfirst.control.deployment.measuring.bench import Workload

    for first, second, names in (
        (concurrency, rate, "--concurrency and --rate"),
        (requests, seconds, "--requests and --seconds"),
    ):
        if first is not None and second is not None:
            raise InputError(f"{names} exclude each other", hint="Leave one of them out.")
    return Workload(
        shape=SHAPES[shape],
        loads=loads("rate", rate) if rate else loads("concurrency", concurrency or "1,4,16"),
        dataset=dataset,
        promised=promised,
        number=requests,
        seconds=seconds,
        warmup=warmup,
        seed=seed,
    )


def _summary(outcome: BenchOutcome, earlier: BenchResult | None) -> dict[str, Any]:
    from headfirst.control.bench.trial import compare

    summary: dict[str, Any] = {"folder": str(outcome.folder), **outcome.result.model_dump(mode="json")}
    if outcome.capacity:
        summary["slo"] = {
            "highest": outcome.capacity.highest and outcome.capacity.highest.value,
            "limit": outcome.capacity.limit and outcome.capacity.limit.value,
        }
    if earlier:
        rows = compare(earlier.points, outcome.result.points)
        summary["compared"] = [row.model_dump(mode="json") for row in rows]
    return summary


def _engines(
    run: RunOptions,
    workload: Workload,
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
        shown.watcher(console, workload, as_json=as_json) as watcher,
        PlainReporter(sys.stderr) as reporter,
    ):
        outcome = bench_engines(run, workload, listed, output, watcher, reporter)
    if as_json:
        summary = {
            "folder": str(outcome.folder),
            "runs": [result.model_dump(mode="json") for result in outcome.results],
        }
        typer.echo(json.dumps(summary, indent=2, allow_nan=False))
        return
    for result in outcome.results:
        shown.print_result(result, console)
    first = outcome.results[0]
    for other in outcome.results[1:]:
        names_of = (first.subject.engine, other.subject.engine)
        shown.print_comparison(first, other, console, names=names_of)
    console.print(f"  Results   {escape(str(outcome.folder))}")
