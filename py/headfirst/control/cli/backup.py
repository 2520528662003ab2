"""`deploy backup`: keep a copy of the chats."""

from __future__ import annotations

import json
from dataclasses import asdict

import typer

from headfirst.control.cli import login_options, options
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.terminal import Terminal

EXAMPLE = "Example: deploy backup cluster.ini"


@login_options.accepted
def run(
    inventory: options.InventoryArgument = None,
    inventory_option: options.InventoryOption = None,
    extra_vars: options.ExtraVars = None,
    wait: options.Wait = 0.0,
    as_json: options.Json = False,
) -> None:
    """Back up accounts, chats and files of the chat page on its host, while it runs."""
    from headfirst.control.deployment.verbs import webui_backups
    from headfirst.control.run.reporters.quiet import QuietReporter

    run_options = RunOptions(options.inventories(inventory, inventory_option), extra_vars or [], wait_s=wait)
    name, found = webui_backups.take(run_options, QuietReporter())
    if as_json:
        typer.echo(json.dumps({"backup": name, "backups": [asdict(one) for one in found]}))
        return
    console = Terminal(highlight=False, soft_wrap=True, markup=False)
    if not name:
        console.print("There are no accounts and chats yet.")
        return
    made = next(one for one in found if one.name == name)
    console.print(f"{name}: {made.files} files, {made.bytes / 1e6:.1f} MB. Backups on the host: {len(found)}")
    console.print(f"  Restore it  deploy restore {run_options.inventories[0]} {name}")
