"""`deploy events`: what happened to the replicas, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from headfirst.control.cli import login_options, options
from headfirst.control.terminal import Terminal

if TYPE_CHECKING:
    from headfirst.control.deployment.verbs.events import Event

EXAMPLE = "Example: deploy events cluster.ini --since 1d"


@login_options.accepted
def run(
    inventory: options.InventoryArgument = None,
    inventory_option: options.InventoryOption = None,
    extra_vars: options.ExtraVars = None,
    service: options.Service = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="10m|TIME", help="Only events after this.", show_default=False),
    ] = None,
    log: Annotated[bool, typer.Option("--log", help="Show the last lines of each rank that ended.")] = False,
    as_json: options.Json = False,
) -> None:
    """Show when ranks ended, why, and what the supervisors did: all hosts in one order."""
    from headfirst.control.deployment.verbs.events import events
    from headfirst.control.inventory.inventory import load
    from headfirst.control.live.logs import parse_since
    from headfirst.control.live.supervision import HISTORY

    cluster = load(options.inventories(inventory, inventory_option), extra_vars or [])
    found = events(cluster, service, since=parse_since(since) if since else None)
    if as_json:
        typer.echo(found.model_dump_json(indent=2, ensure_ascii=True))
        return
    console = Terminal(highlight=False, soft_wrap=True)
    several = len(cluster.chosen(service)) > 1
    for one in found.events:
        _print(one, console, named=several, log=log)
    if not found.events:
        console.print("No events: no rank has ended since the supervisors started.")
    for host, count in found.damaged.items():
        lines = "1 line" if count == 1 else f"{count} lines"
        console.print(f"[yellow]{escape(host)}: {lines} of its history cannot be read: {HISTORY}[/]")
    for host, reason in found.silent.items():
        console.print(f"[yellow]{escape(host)} does not answer: {escape(reason)}[/]")


def _print(event: Event, console: Terminal, *, named: bool, log: bool) -> None:
    name = f"{event.service}/{event.replica}  " if named else ""
    at = event.at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    console.print(f"{at}  {escape(event.host)}  {escape(name)}{escape(event.text)}")
    if event.cause:
        console.print(f"    {escape(event.cause.rstrip('.'))}. {escape(event.fix)}")
    for line in event.log if log else ():
        console.print(f"    | {escape(line)}")
