"""`deploy chat`: talk to the model."""

from __future__ import annotations

from typing import Annotated

import typer

from headfirst.control.cli import login_options, options
from headfirst.control.terminal import Terminal

EXAMPLE = "Example: deploy chat cluster.ini 'What is tensor parallelism?'"


@login_options.accepted
def run(
    inventory: options.InventoryArgument = None,
    prompt: Annotated[
        str | None, typer.Argument(help="One question. Without it, start a conversation.", show_default=False)
    ] = None,
    inventory_option: options.InventoryOption = None,
    extra_vars: options.ExtraVars = None,
    service: options.Service = None,
    system: Annotated[str | None, typer.Option("--system", help="System prompt.", show_default=False)] = None,
) -> None:
    """Send a question to the model, from this machine through SSH."""
    from headfirst.control.deployment.verbs.service import open_chat
    from headfirst.control.inventory.inventory import load
    from headfirst.control.live.chat_terminal import converse, print_answer

    cluster = load(options.inventories(inventory, inventory_option), extra_vars or [])
    console = Terminal()
    with open_chat(cluster, system, service) as chat:
        if prompt is None:
            converse(chat, console)
        else:
            print_answer(chat, prompt, console)
