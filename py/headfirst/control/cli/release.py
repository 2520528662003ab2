"""`deploy release`: let another cluster have the hosts."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.markup import escape

from headfirst.control.cli import login_options, options
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.terminal import Terminal

EXAMPLE = "Example: deploy release cluster.ini"


@login_options.accepted
def run(
    inventory: options.InventoryArgument = None,
    inventory_option: options.InventoryOption = None,
    extra_vars: options.ExtraVars = None,
    limit: options.Limit = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster", help="Release the hosts that another cluster of this name has.", show_default=False
        ),
    ] = None,
    wait: options.Wait = 0.0,
    as_json: options.Json = False,
) -> None:
    """Remove the owner record of hosts. Stops nothing: `deploy down` is the way to stop a service."""
    from headfirst.control.deployment.verbs.release import release

    run_options = RunOptions(
        options.inventories(inventory, inventory_option), extra_vars or [], limit, wait_s=wait
    )
    done = release(run_options, cluster)
    if as_json:
        print(json.dumps({"event": "released", "hosts": sorted(done.hosts), "left": sorted(done.left)}))
        return
    console = Terminal(highlight=False, soft_wrap=True)
    for host, owner in done.hosts.items():
        console.print(f"{host}: released from {escape(str(owner))}")
    for host, owner in done.left.items():
        console.print(f"{host}: [yellow]not released[/], it belongs to {escape(str(owner))}")
    if not done.hosts:
        console.print("No host was released.")
