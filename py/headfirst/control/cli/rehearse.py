"""`deploy rehearse`: do the planned ranks start on these hosts? Without the weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from headfirst.common.errors import HeadfirstError, NotReadyError
from headfirst.control.cli.verb import OutputFormat, verb
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.terminal import Terminal

if TYPE_CHECKING:
    from rich.console import Console

    from headfirst.control.rehearsal.result import Rehearsed, RehearsedReplica

_MARKS = {
    "passed": "[green]✓[/]",
    "failed": "[red]✗[/]",
    "not rehearsed": "[yellow]–[/]",
    "stopped": "[yellow]–[/]",
}


@verb("deploy rehearse cluster.ini", *("service", "wait", "json", "plain"))
def rehearse(
    run: RunOptions,
    output: OutputFormat,
    acceptance: Annotated[
        bool,
        typer.Option(
            "--acceptance", help="Use a model that Headfirst includes: it proves the hosts, not the model."
        ),
    ] = False,
) -> None:
    """Start the planned ranks on the hosts with dummy weights, ask them once, and end them.

    It needs the image on the hosts (`deploy up -t host`), not the weights. Exit code 0: all replicas served;
    1: one failed; 3: none could be rehearsed.
    """
    from headfirst.control.deployment.verbs import rehearse

    with output.reporter() as reporter:
        report = rehearse.run(run, reporter, acceptance=acceptance)
    if output.as_json:
        typer.echo(report.model_dump_json())
    else:
        print_rehearsed(report, Terminal(highlight=False, soft_wrap=True))
    if any(replica.state == "failed" for replica in report.replicas):
        raise typer.Exit(HeadfirstError.exit_code)
    if not report.passed:
        raise typer.Exit(NotReadyError.exit_code)


def print_rehearsed(report: Rehearsed, console: Console) -> None:
    """Each replica with what its start took, or why it failed and what to do."""
    from headfirst.control.deployment.verbs.rehearse import verdict

    for replica in report.replicas:
        where = f"{replica.host}: " if replica.host else ""
        console.print(f"{_MARKS[replica.state]} {escape(where + verdict(replica))}")
        for line in _lines(replica):
            console.print(f"  {escape(line)}")


def _lines(replica: RehearsedReplica) -> list[str]:
    lines = [f"Left out: {text}" for text in replica.left_out]
    if replica.phases:
        parts = (f"{name} {seconds:.0f} s" for name, seconds in replica.phases.items())
        lines.append(f"Time: {', '.join(parts)}")
    cause = replica.found.decisive if replica.found and replica.state == "failed" else None
    lines += [f"| {line}" for line in (cause.lines if cause else [])]
    lines += [f"→ {replica.fix}"] if replica.fix else []
    lines += [f"Logs of its ranks: {replica.logs}"] if replica.logs else []
    if replica.found:
        lines += [f"note: {note.host}: {note.means}. {note.fix}" for note in replica.found.notes]
    return lines
