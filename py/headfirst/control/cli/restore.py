"""`deploy restore`: bring the chats of a backup back."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from headfirst.control.cli import login_options, options
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.terminal import Terminal

EXAMPLE = "Example: deploy restore cluster.ini --list"


@login_options.accepted
def run(
    inventory: options.InventoryArgument = None,
    name: Annotated[
        str | None, typer.Argument(help="Name of the backup; without it the newest.", show_default=False)
    ] = None,
    inventory_option: options.InventoryOption = None,
    extra_vars: options.ExtraVars = None,
    list_: Annotated[bool, typer.Option("--list", help="List the backups and change nothing.")] = False,
    wait: options.Wait = 0.0,
    as_json: options.Json = False,
) -> None:
    """Replace accounts, chats and files of the chat page by a backup.

    The page stops for that. The present data are backed up first, and restored if the page does not answer.
    """
    from headfirst.control.deployment.verbs import webui_backups
    from headfirst.control.run.reporters.quiet import QuietReporter

    run_options = RunOptions(options.inventories(inventory, inventory_option), extra_vars or [], wait_s=wait)
    console = Terminal(highlight=False, soft_wrap=True)
    if not list_:
        restored = webui_backups.restore(run_options, QuietReporter(), name or "")
        if as_json:
            typer.echo(json.dumps({"restored": restored}))
            return
        console.print(f"The chat page serves the backup {restored}.")
        return
    found = webui_backups.listed(run_options, QuietReporter())
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in found]))
        return
    table = Table("backup", "files", "MB", "of image", "reason", box=None)
    for one in found:
        table.add_row(
            one.name,
            str(one.files),
            f"{one.bytes / 1e6:.1f}",
            escape(one.image),
            escape(f"cannot be restored: {one.problem}" if one.problem else one.reason),
        )
    console.print(table)
