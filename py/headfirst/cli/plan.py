"""`deploy plan`: what `deploy up` would do, to the last flag."""

from __future__ import annotations

from typing import Annotated

import typer

from headfirst.cli import login_options, options
from headfirst.errors import InputError

EXAMPLE = "Example: deploy plan cluster.ini --json"


@login_options.accepted
def run(
    inventory: options.InventoryArgument = None,
    inventory_option: options.InventoryOption = None,
    extra_vars: options.ExtraVars = None,
    probe: Annotated[
        bool, typer.Option("--probe", help="Ask the hosts over SSH for what the inventory omits.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Show ranks, memory, environment and the docker run line of every node. Needs no SSH.

    Exit code 2: the model does not fit into the memory of the GPUs.
    """
    from headfirst.cli.plan_table import print_plan
    from headfirst.deployment.prepare import prepare

    inventories = options.inventories(inventory, inventory_option)
    prepared = prepare(inventories, extra_vars or [], probe=probe, rates=probe)
    for note in prepared.cluster.notes:
        typer.echo(f"note: {note}", err=True)
    if as_json:
        typer.echo(prepared.plan.model_dump_json(indent=2, ensure_ascii=True))
    else:
        print_plan(prepared.plan)
    if prepared.plan.fit.fits is False:
        raise typer.Exit(InputError.exit_code)
