"""`deploy top`: a live view of replicas and ranks."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from headfirst.common.errors import InputError
from headfirst.control.cli import login_options, options

EXAMPLE = "Example: deploy top cluster.ini --interval 5"


@login_options.accepted
def run(
    inventory: options.InventoryArgument = None,
    inventory_option: options.InventoryOption = None,
    extra_vars: options.ExtraVars = None,
    service: options.Service = None,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.5, help="Time between two updates.")
    ] = 2.0,
) -> None:
    """Watch all replicas, ranks and requests. Keys: q quit, s sort, r reverse, f next service."""
    from headfirst.control.deployment.verbs.service import watch
    from headfirst.control.inventory.inventory import load

    cluster = load(options.inventories(inventory, inventory_option), extra_vars or [])
    if not sys.stdout.isatty():
        raise InputError("`deploy top` needs a terminal", hint="For a script: deploy status INVENTORY --json")
    from headfirst.control.cli.shown.top import Top

    with watch(cluster, service) as source:
        Top(source.read, interval, title=cluster.name).run()
