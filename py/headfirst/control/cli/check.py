"""`deploy check`: are the hosts ready? And with --comm: do the ranks reach each other, and how fast?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from headfirst.common.errors import HeadfirstError, InputError, NotReadyError
from headfirst.control.cli.verb import OutputFormat, verb
from headfirst.control.deployment.running.options import Backend, RunOptions
from headfirst.control.terminal import Terminal

if TYPE_CHECKING:
    from rich.console import Console

    from headfirst.control.run.comm import Comm, NcclChannels, Run
    from headfirst.control.run.result import RunResult

GBIT = 1e9 / 8  # bytes a second


@verb("deploy check cluster.ini", "limit", "service", "wait", "json", "plain", "verbose")
def check(
    run: RunOptions,
    output: OutputFormat,
    comm: Annotated[
        bool,
        typer.Option(
            "--comm", help="Instead, test the communication between the ranks in the engine's image."
        ),
    ] = False,
    backend: Annotated[
        Backend | None,
        typer.Option("--backend", help="With --comm: only this. Default: gloo, and nccl where GPUs serve."),
    ] = None,
) -> None:
    """Check every host before anything is changed; each finding has its fix.

    Exit code 0: ready; 1: ready, with warnings; 3: not ready.
    """
    from headfirst.control.deployment.verbs.check import check

    if run.service and not comm:
        raise InputError("--service is for --comm", hint="Without it, deploy check reads every host.")
    if run.wait_s and not comm:
        raise InputError("--wait is for --comm", hint="Hosts are checked without a lock: leave it out.")
    if backend and not comm:
        raise InputError("--backend is for --comm", hint="deploy check INVENTORY --comm --backend gloo")
    if comm:
        _comm(run, output, backend)
        return
    with output.reporter() as reporter:
        result = check(run, reporter)
    if print_checked(result, as_json=output.as_json):
        raise typer.Exit(HeadfirstError.exit_code)


def _comm(run: RunOptions, output: OutputFormat, backend: Backend | None) -> None:
    from headfirst.control.deployment.verbs.check import comm

    with output.reporter() as reporter:
        report = comm(run, reporter, backend)
    if output.as_json:
        print(json.dumps({"event": "comm", **report.model_dump()}))
    else:
        print_comm(report, Terminal(highlight=False, soft_wrap=True))
    if report.findings:
        raise typer.Exit((NotReadyError if report.failed else HeadfirstError).exit_code)


def print_checked(result: RunResult, *, as_json: bool) -> int:
    """Print that all is ready, and the number of warnings, which the run has printed; returns that number."""
    count = sum(finding.severity == "warning" for finding in result.findings)
    console = Terminal(highlight=False, soft_wrap=True)
    if as_json:
        print(json.dumps({"event": "checked", "ready": True, "warnings": count}))
    elif count:
        warnings = "1 warning" if count == 1 else f"{count} warnings"
        console.print(f"[bold yellow]Ready, with {warnings}[/] (exit code 1). `deploy up` goes on.")
    else:
        console.print("[bold green]Ready.[/] The checks found no errors and no warnings.")
    return count


def print_comm(report: Comm, console: Console) -> None:
    """The ports, a table for each back-end, NCCL's way, and the findings with what to do about them."""
    _ports(report, console)
    for run in report.runs:
        _run(run, report, console)
    for host, way in report.nccl.items():
        console.print(f"  {escape(f'{host}: {_way(way)}')}")
    for finding in report.findings:
        colour = "red" if finding.severity == "error" else "yellow"
        console.print(f"[{colour}]{escape(finding.severity)}:[/] {escape(f'{finding.host}: {finding.what}')}")
        if finding.why:
            console.print(f"  {escape(finding.why)}")
        console.print(f"  → {escape(finding.fix)}")
    if not report.findings:
        console.print("[bold green]The ranks reach each other, and their sums are right.[/]")


def _ports(report: Comm, console: Console) -> None:
    met = sum(pair.ok for pair in report.pairs)
    ports = sorted({pair.port for pair in report.pairs if not pair.rendezvous})
    rendezvous = {pair.port for pair in report.pairs if pair.rendezvous}
    listed = ", ".join([*(f"{port} (rendezvous)" for port in rendezvous), *map(str, ports)])
    in_use = "; a service holds the rendezvous port, and answers" if report.rendezvous_held else ""
    if report.pairs:
        console.print(
            f"{met} of {len(report.pairs)} connections made, in both directions, to ports {listed}{in_use}"
        )


def _run(run: Run, report: Comm, console: Console) -> None:
    link = f", the slowest link has {run.link_gbit:.0f} Gbit/s" if run.link_gbit else ""
    console.print(
        f"[bold]{escape(run.backend)}[/] all-reduce, {run.ranks} ranks, torch {escape(report.torch)}{link}"
    )
    table = Table("size", "time", "algorithm Gbit/s", "bus Gbit/s", "sums", box=None)
    for column in table.columns[:4]:
        column.justify = "right"
    for row in run.rows:
        table.add_row(
            f"{_size(row.bytes)}{', CUDA graph' if row.graph else ''}",
            _time(row.seconds),
            f"{row.algbw / GBIT:.3f}",
            f"{row.busbw / GBIT:.3f}",
            f"{row.wrong} wrong" if row.wrong else "right",
        )
    console.print(table)
    if run.stopped:
        console.print(f"  stopped at this size: {escape(run.stopped)}")


def _way(way: NcclChannels) -> str:
    devices = f" ({', '.join(way.devices)})" if way.devices else ""
    channels = []
    if way.rdma:
        channels.append(f"{way.rdma} channels over RDMA, {way.direct} of them from GPU memory (GDRDMA)")
    if way.socket:
        channels.append(f"{way.socket} channels over TCP (NET/Socket)")
    if way.inside:
        channels.append(f"{way.inside} inside the host")
    said = "; ".join(channels) or "no channels in its log"
    return f"NCCL {way.version}, network {way.network or 'not reported'}{devices}: {said}"


def _size(size: int) -> str:
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 2**power:
            return f"{size >> power} {unit}"
    return f"{size} B"


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.2f} {unit}"
    return f"{seconds * 1e6:.0f} µs"
