"""`deploy diagnose`: what is wrong, where it began, and what to change."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.markup import escape

from headfirst.common.errors import HeadfirstError, NotReadyError
from headfirst.control.cli import login_options, options
from headfirst.control.terminal import Terminal

EXAMPLE = "Example: deploy diagnose cluster.ini"


@login_options.accepted
def run(
    inventory: options.InventoryArgument = None,
    inventory_option: options.InventoryOption = None,
    extra_vars: options.ExtraVars = None,
    service: options.Service = None,
    tuning: Annotated[
        bool, typer.Option("--tuning", help="Advice for throughput, from the live figures of the engine.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Find the first failure on all nodes.

    Exit code 0: it serves; 1: a failure was found; 3: hosts do not answer, nothing runs, or it still starts.
    """
    from headfirst.control.cli.shown import diagnose as shown
    from headfirst.control.deployment.verbs import diagnose
    from headfirst.control.inventory.inventory import load

    console = Terminal(highlight=False, soft_wrap=True)
    inventories = options.inventories(inventory, inventory_option)
    cluster = load(inventories, extra_vars or [])
    if tuning:
        advised = diagnose.tuning(cluster, service)
        if as_json:
            typer.echo(advised.model_dump_json(indent=2, ensure_ascii=True))
        else:
            shown.print_tuning(advised, console)
        return
    replicas = diagnose.diagnose(cluster, service)
    ready = all(one.found.ready for one in replicas)
    if as_json:
        listed = [one.model_dump(mode="json") for one in replicas]
        typer.echo(json.dumps({"ready": ready, "replicas": listed}, indent=2))
    else:
        for one in replicas:
            if len(replicas) > 1:
                console.print(f"[bold]{escape(one.service)}, replica {one.replica}[/]")
            shown.print_diagnosis(one.found, str(inventories[0]), console)
    if not ready:
        failed = any(one.found.decisive for one in replicas)
        raise typer.Exit((HeadfirstError if failed else NotReadyError).exit_code)
