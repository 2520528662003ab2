"""`deploy diagnose` and `deploy report`: what is wrong, and one page about a cluster to hand over."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from headfirst.common.errors import HeadfirstError, InputError, NotReadyError
from headfirst.control.cli.verb import OutputFormat, Probe, verb, write_file
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.terminal import Terminal

if TYPE_CHECKING:
    from rich.console import Console

    from headfirst.decide.diagnose.types import Diagnosis, Event, Tuning

_A_YEAR_IS_KNOWN = 1e9  # of times in logs; those without one are of 2000
# A clock that is off by less explains nothing.
CLOCK_S = 1.0


@verb("deploy diagnose cluster.ini", "service", "json", unless="log")
def diagnose(
    run: RunOptions,
    output: OutputFormat,
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE", help="A log, with --log; - is standard input.")
    ] = None,
    log: Annotated[
        bool,
        typer.Option("--log", help="Read logs instead of hosts: all names are files, and none an inventory."),
    ] = False,
    tuning: Annotated[
        bool, typer.Option("--tuning", help="Advice for throughput, from the live figures of the engine.")
    ] = False,
) -> None:
    """Find the first failure on all nodes, or in logs.

    Exit code 0: it serves; 1: a failure was found; 3: hosts do not answer, nothing runs, or it still starts.
    Of logs 3: they show neither a failure nor an engine that is ready.
    """
    from headfirst.control.deployment.verbs import diagnose
    from headfirst.control.inventory.inventory import load

    console = Terminal(highlight=False, soft_wrap=True)
    if log:
        log_diagnosis = diagnose.of_logs([str(file) for file in (*run.inventories, *(files or ()))])
        if output.as_json:
            typer.echo(log_diagnosis.model_dump_json(indent=2, ensure_ascii=True))
        else:
            print_diagnosis(log_diagnosis, "", console)
        _exit(log_diagnosis.decisive, ready=log_diagnosis.ready)
        return
    if files:
        raise InputError(f"a second inventory: {files[0]}", hint="-i names it; --log reads files as logs.")
    cluster = load(run.inventories, run.extra_vars)
    if tuning:
        advised = diagnose.tuning(cluster, run.service)
        if output.as_json:
            typer.echo(advised.model_dump_json(indent=2, ensure_ascii=True))
        else:
            print_tuning(advised, console)
        return
    replicas = diagnose.diagnose(cluster, run.service)
    ready = all(diagnosis.found.ready for diagnosis in replicas)
    if output.as_json:
        listed = [diagnosis.model_dump(mode="json") for diagnosis in replicas]
        typer.echo(json.dumps({"ready": ready, "replicas": listed}, indent=2))
    else:
        for diagnosis in replicas:
            if len(replicas) > 1:
                console.print(f"[bold]{escape(diagnosis.service)}, replica {diagnosis.replica}[/]")
            print_diagnosis(diagnosis.found, str(run.inventories[0]), console)
    _exit(next((one.found.decisive for one in replicas if one.found.decisive), None), ready=ready)


@verb("deploy report cluster.ini -o report.html", "json")
def report(
    run: RunOptions,
    output: OutputFormat,
    file: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the page there.")
    ] = None,
    probe: Probe = False,
) -> None:
    """Write one HTML page: topology, plan with its reasons, last checks, timings, measurements, versions.

    Its sources are the inventory and the records of runs on this controller; what was not recorded is
    listed with the command that records it. No secret is in it.
    """
    from headfirst.control.deployment.verbs.report import report
    from headfirst.control.report.page import html

    document = report(run, probe=probe)
    text = document.model_dump_json(indent=2, ensure_ascii=True) + "\n" if output.as_json else html(document)
    if file is None:
        typer.echo(text, nl=False)
        return
    write_file(file, text)
    for missing in document.missing:
        typer.echo(f"not recorded: {missing.what}; recorded by: {missing.command}", err=True)
    typer.echo(f"Written to {file}", err=True)


def print_diagnosis(diagnosis: Diagnosis, inventory: str, console: Console) -> None:
    """The decisive event first; colour where the console has any."""
    if diagnosis.decisive:
        _decisive(diagnosis.decisive, inventory, console)
        _followed(diagnosis.decisive, diagnosis.then, console)
    elif diagnosis.ready:
        console.print("[bold green]Nothing is wrong.[/] All ranks run, and the engine generates.")
    else:
        console.print("[bold yellow]Not ready, and no failure found.[/] It may still be starting:")
        for node in diagnosis.nodes:
            doing = node.doing or "no known step"
            console.print(f"  rank {node.rank} on {escape(f'{node.host}: {node.state}, {doing}')}")
    for node in diagnosis.nodes:
        if node.problem:
            console.print(f"[red]not seen:[/] rank {node.rank} on {node.host}: {escape(node.problem)}")
        if abs(node.clock_offset_s) >= CLOCK_S:
            way = "ahead of" if node.clock_offset_s > 0 else "behind"
            off = abs(node.clock_offset_s)
            console.print(
                f"[yellow]clock:[/] {node.host} is {off:.1f} s {way} this machine (corrected above)"
            )
    for note in diagnosis.notes:
        console.print(f"[yellow]note:[/] {_who(note)}: {escape(note.means)} [dim]({_rule(note)})[/]")
        _lines(note, console)
        console.print(f"  → {escape(note.fix)}")


def print_tuning(tuning: Tuning, console: Console) -> None:
    """The figures, then each change with the figures that led to it."""
    if live := tuning.live:
        rate = "" if live.gen_throughput is None else f", {live.gen_throughput:.1f} tokens/s"
        usage = f"token usage {live.token_usage:.2f}"
        console.print(f"running {live.running:.0f}, queued {live.queued:.0f}, {usage}{rate}")
    if tuning.seen:
        console.print(tuning.seen)
    if tuning.advice is None:
        console.print(f"There are no tuning rules for {tuning.engine}; {tuning.load}.")
        return
    for advice in tuning.advice:
        console.print(f"[bold]{advice.setting}[/]: {escape(advice.change)}\n  because {escape(advice.why)}")
    if not tuning.advice:
        console.print(f"[bold green]Nothing to change[/]; {tuning.load}.")


def _decisive(event: Event, inventory: str, console: Console) -> None:
    who = _who(event) if event.file else _who(event).capitalize()
    console.print(f"[bold red]{who}: {escape(event.means)}.[/]")
    time = f"{_time(event.at)}{'' if event.file else ' UTC'}, " if event.at > _A_YEAR_IS_KNOWN else ""
    console.print(f"  {time}{event.source} [dim]({_rule(event)})[/]")
    _lines(event, console)
    console.print(f"  → {escape(event.fix.replace('INVENTORY', inventory))}")
    if event.file and event.weight == "consequence":
        console.print("  Only what followed is in these logs. Add the log of the rank that ended first.")


def _followed(first: Event, then: list[Event], console: Console) -> None:
    if then:
        console.print("Beside it:")
    for event in then:
        apart = f"{event.at - first.at:+.1f} s"
        console.print(f"  {apart:>10}  {_who(event)}: {escape(event.means)} [dim]({_rule(event)})[/]")


def _exit(decisive: Event | None, *, ready: bool) -> None:
    if not ready:
        raise typer.Exit((HeadfirstError if decisive else NotReadyError).exit_code)


def _lines(event: Event, console: Console) -> None:
    for line in event.lines:
        console.print(f"  | {escape(line)}")


def _who(event: Event) -> str:
    if event.file:
        return escape(f"{event.file}:{event.line}" + (f" ({event.host})" if event.host else ""))
    return f"rank {event.rank} on {event.host}"


def _rule(event: Event) -> str:
    numbers = ", ".join(str(number) for number in event.failures)
    return f"{event.rule}, failure {numbers}" if numbers else event.rule


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).isoformat(" ", "milliseconds")[:-6]
