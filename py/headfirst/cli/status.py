"""`deploy status`: what runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headfirst.cli import login_options, options
from headfirst.errors import NotReadyError
from headfirst.terminal import Terminal

if TYPE_CHECKING:
    from headfirst.live.status_types import ClusterStatus

EXAMPLE = "Example: deploy status cluster.ini --json"


@login_options.accepted
def run(
    inventory: options.InventoryArgument = None,
    inventory_option: options.InventoryOption = None,
    extra_vars: options.ExtraVars = None,
    as_json: options.Json = False,
) -> None:
    """Show every rank, the engine and the chat page. Exit code 3 when something is not ready."""
    from headfirst.cluster.inventory import load
    from headfirst.deployment import service

    inventories = options.inventories(inventory, inventory_option)
    found = service.status(load(inventories, extra_vars or []))
    if as_json:
        typer.echo(found.model_dump_json(indent=2, ensure_ascii=True))
    else:
        _print(found, str(inventories[0]), Terminal(highlight=False))
    if not found.ready:
        raise typer.Exit(NotReadyError.exit_code)


def _print(found: ClusterStatus, inventory: str, console: Console) -> None:
    table = Table("rank", "host", "container", "restarts", "since", "image", box=None)
    for rank in found.ranks:
        state = f"{rank.state}: {rank.problem}" if rank.problem else rank.state
        restarts = "" if rank.restarts is None else str(rank.restarts)
        table.add_row(
            str(rank.rank),
            rank.host,
            escape(state),
            restarts,
            escape((rank.started_at or "")[:19]),
            escape(rank.image or ""),
        )
    console.print(table)
    _line(
        console,
        "engine",
        found.engine.url,
        found.engine.ready,
        ", ".join(found.engine.models),
        found.engine.problem,
    )
    if found.webui:
        _line(
            console, "chat page", found.webui.url, found.webui.ready, found.webui.state, found.webui.problem
        )
    if not found.engine.ready:
        console.print(f"Why: deploy diagnose {escape(inventory)}", soft_wrap=True)


def _line(console: Console, what: str, url: str, ready: bool, more: str, problem: str | None) -> None:
    mark = "[green]ready[/]" if ready else "[red]not ready[/]"
    console.print(f"{what}  {url}  {mark}  {escape(problem or more)}", soft_wrap=True)
