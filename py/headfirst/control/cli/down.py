"""`deploy down`: stop the service."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from headfirst.common.errors import HeadfirstError, InputError
from headfirst.control.cli import login_options, options
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.terminal import Terminal

if TYPE_CHECKING:
    from headfirst.control.deployment.verbs.down import Target

EXAMPLE = "Example: deploy down cluster.ini"


@login_options.accepted
def run(
    inventory: options.InventoryArgument = None,
    inventory_option: options.InventoryOption = None,
    extra_vars: options.ExtraVars = None,
    limit: options.Limit = None,
    data: Annotated[
        bool, typer.Option("--data", help="Also remove /var/lib/headfirst: weights and chats.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --data: do not prompt.")] = False,
    check: options.Check = False,
    wait: options.Wait = 0.0,
    as_json: options.Json = False,
    plain: options.Plain = False,
    verbose: options.Verbose = 0,
) -> None:
    """Stop the chat page and the ranks, and remove what Headfirst made; Docker and the images stay."""
    from headfirst.control.cli.reporting import choose_reporter, print_down
    from headfirst.control.deployment.verbs.down import down, target

    run_options = RunOptions(
        options.inventories(inventory, inventory_option),
        extra_vars or [],
        limit,
        check=check,
        verbosity=verbose,
        wait_s=wait,
    )
    found = target(run_options)
    for host, owner in found.left.items():
        Terminal(stderr=True, highlight=False, soft_wrap=True).print(
            f"[yellow]warning:[/] {host} is left alone: it belongs to {escape(str(owner))}"
        )
    if data and not check:
        _confirm(found, yes=yes)
    with choose_reporter(as_json=as_json, plain=plain) as reporter:
        result = down(found, reporter, data=data)
    print_down(result, data=data, as_json=as_json)


def _confirm(found: Target, *, yes: bool) -> None:
    """Print what will be deleted, and ask unless --yes was given."""
    from headfirst.control.deployment.verbs.down import data_bytes
    from headfirst.control.run.amounts import size

    console = Terminal(stderr=True, highlight=False, soft_wrap=True)
    name = found.cluster.name
    console.print(f"--data deletes /var/lib/headfirst (weights, chats, accounts) of cluster {escape(name)}:")
    for host, number in data_bytes(found).items():
        console.print(f"  {host}  {size(number)}")
    if yes:
        return
    if not sys.stdin.isatty():
        raise InputError(
            "--data deletes weights and chats, and there is no terminal for a prompt",
            hint="Add --yes to confirm.",
        )
    if (
        typer.prompt(f"Type the cluster's name ({name}) to delete them", default="", show_default=False)
        != name
    ):
        raise HeadfirstError(
            "nothing was changed: the name was not typed", hint="Without --data the files stay."
        )
