"""`deploy down`: stop the service."""

from __future__ import annotations

from typing import Annotated

import typer

from headfirst.cli import options
from headfirst.deployment.options import RunOptions

EXAMPLE = "Example: deploy down cluster.ini"


def run(
    inventory: options.InventoryArgument = None,
    inventory_option: options.InventoryOption = None,
    extra_vars: options.ExtraVars = None,
    limit: options.Limit = None,
    data: Annotated[
        bool, typer.Option("--data", help="Also remove /var/lib/headfirst: weights and chats.")
    ] = False,
    check: options.Check = False,
    as_json: options.Json = False,
    plain: options.Plain = False,
    verbose: options.Verbose = 0,
) -> None:
    """Stop the chat page and the ranks, and remove what Headfirst made; Docker and the images stay."""
    from headfirst.cli.reporting import choose_reporter, print_down
    from headfirst.deployment.down import down

    run_options = RunOptions(
        options.inventories(inventory, inventory_option),
        extra_vars or [],
        limit,
        check=check,
        verbosity=verbose,
    )
    with choose_reporter(as_json=as_json, plain=plain) as reporter:
        result = down(run_options, reporter, data=data)
    print_down(result, data=data, as_json=as_json)
