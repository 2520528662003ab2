"""`deploy test`: smoke tests of the running service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headfirst.common.errors import HeadfirstError, InputError
from headfirst.control.cli import login_options, options
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.terminal import Terminal

EXAMPLE = "Example: deploy test cluster.ini --only 'sampling.*' --junit smoke.xml"


@login_options.accepted
def run(
    inventory: options.InventoryArgument = None,
    inventory_option: options.InventoryOption = None,
    extra_vars: options.ExtraVars = None,
    service: options.Service = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="PATTERN", help="Only these cases, as 'chat.*'.", show_default=False),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the cases and send no request.")] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=1, help="Time limit of one request.")
    ] = 300.0,
    junit: Annotated[
        Path | None,
        typer.Option("--junit", metavar="FILE", help="Write the results as JUnit's XML.", show_default=False),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Test the running service through the OpenAI client, and print what passed, failed or is not supported.

    Exit code 0: no case failed; 1: a case failed; 3: the service is not ready.
    """
    from headfirst.control.cli.shown import smoke as shown
    from headfirst.control.smoke import runner

    cases = runner.chosen(only or [])
    console = Terminal(highlight=False, soft_wrap=True)
    if listed:
        shown.print_cases(cases, console, as_json=as_json)
        return
    from headfirst.control.deployment.verbs import smoke
    from headfirst.control.smoke.report import write_junit

    wanted = RunOptions(options.inventories(inventory, inventory_option), extra_vars or [], service=service)
    if junit and not junit.absolute().parent.is_dir():
        raise InputError(f"the folder of {junit} does not exist", where="--junit")
    with shown.watcher(console, cases, as_json=as_json) as watcher:
        report = smoke.run(wanted, cases, watcher, timeout_s=timeout)
    if junit:
        write_junit(report, junit)
    if as_json:
        typer.echo(report.model_dump_json(indent=2, ensure_ascii=True))
    else:
        shown.print_summary(report, console)
    if not report.passed:
        raise typer.Exit(HeadfirstError.exit_code)
