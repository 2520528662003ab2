"""`deploy report`: one file about a cluster to hand over."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headfirst.control.cli import login_options, options
from headfirst.control.deployment.running.options import RunOptions

EXAMPLE = "Example: deploy report cluster.ini -o report.html"


@login_options.accepted
def run(
    inventory: options.InventoryArgument = None,
    inventory_option: options.InventoryOption = None,
    extra_vars: options.ExtraVars = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write the page there.", show_default=False),
    ] = None,
    probe: options.Probe = False,
    as_json: options.Json = False,
) -> None:
    """Write one HTML page: topology, plan with its reasons, last checks, timings, measurements, versions.

    Its sources are the inventory and the records of runs on this controller; what was not recorded is
    listed with the command that records it. No secret is in it.
    """
    from headfirst.control.deployment.verbs.report import report
    from headfirst.control.report.page import html

    inventories = options.inventories(inventory, inventory_option)
    found = report(RunOptions(inventories, extra_vars or []), probe=probe)
    text = found.model_dump_json(indent=2, ensure_ascii=True) + "\n" if as_json else html(found)
    if output is None:
        typer.echo(text, nl=False)
        return
    options.write_file(output, text)
    for one in found.missing:
        typer.echo(f"not recorded: {one.what}; recorded by: {one.command}", err=True)
    typer.echo(f"Written to {output}", err=True)
