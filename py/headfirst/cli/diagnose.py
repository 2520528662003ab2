"""`deploy diagnose`: what is wrong, where it began, and what to change."""

from __future__ import annotations

from typing import Annotated

import typer

from headfirst.cli import login_options, options
from headfirst.errors import HeadfirstError, NotReadyError
from headfirst.terminal import Terminal

EXAMPLE = "Example: deploy diagnose cluster.ini"


@login_options.accepted
def run(
    inventory: options.InventoryArgument = None,
    inventory_option: options.InventoryOption = None,
    extra_vars: options.ExtraVars = None,
    tuning: Annotated[
        bool, typer.Option("--tuning", help="Advice for throughput, from the live figures of the engine.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Find where a failure began, over all nodes.

    Exit code 0: it serves; 1: a failure was found; 3: hosts do not answer, nothing runs, or it still starts.
    """
    from headfirst.cli import diagnose_text
    from headfirst.cluster.inventory import load
    from headfirst.deployment import diagnose

    console = Terminal(highlight=False, soft_wrap=True)
    inventories = options.inventories(inventory, inventory_option)
    cluster = load(inventories, extra_vars or [])
    if tuning:
        advised = diagnose.tuning(cluster)
        if as_json:
            typer.echo(advised.model_dump_json(indent=2, ensure_ascii=True))
        else:
            diagnose_text.print_tuning(advised, console)
        return
    found = diagnose.diagnose(cluster)
    if as_json:
        typer.echo(found.model_dump_json(indent=2, ensure_ascii=True))
    else:
        diagnose_text.print_diagnosis(found, str(inventories[0]), console)
    if not found.ready:
        raise typer.Exit((HeadfirstError if found.decisive else NotReadyError).exit_code)
