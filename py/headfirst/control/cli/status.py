"""`deploy status`: what runs."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headfirst.common.errors import NotReadyError
from headfirst.control.cli import login_options, options
from headfirst.control.cli.shown import load as shown
from headfirst.control.run.amounts import duration
from headfirst.control.terminal import Terminal

if TYPE_CHECKING:
    from headfirst.control.live.status_types import ClusterStatus, ReplicaStatus, Supervision

EXAMPLE = "Example: deploy status cluster.ini --json"


@login_options.accepted
def run(
    inventory: options.InventoryArgument = None,
    inventory_option: options.InventoryOption = None,
    extra_vars: options.ExtraVars = None,
    service: options.Service = None,
    arguments: Annotated[
        bool, typer.Option("--arguments", help="Show the command line of each rank's container.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Show every rank, engine and router and the chat page. Exit code 3 when something is not ready."""
    from headfirst.control.deployment.running.recorded import keep_images
    from headfirst.control.deployment.verbs import service as running
    from headfirst.control.inventory.inventory import load

    inventories = options.inventories(inventory, inventory_option)
    cluster = load(inventories, extra_vars or [])
    found = running.status(cluster, service)
    keep_images(cluster, found)
    if as_json:
        typer.echo(found.model_dump_json(indent=2, ensure_ascii=True))
    else:
        _print(found, str(inventories[0]), Terminal(highlight=False), arguments=arguments)
    if not found.ready:
        raise typer.Exit(NotReadyError.exit_code)


def _print(found: ClusterStatus, inventory: str, console: Console, *, arguments: bool) -> None:
    for replica in found.replicas:
        _replica(replica, console, alone=len(found.replicas) == 1)
        if arguments:
            _arguments(replica, console)
    for router in found.routers:
        seen = ", ".join(f"{one.url} {one.state}, {one.requests} requests" for one in router.replicas)
        what = f"router of {router.service}"
        _line(console, what, router.url, router.ready, seen or router.state, router.problem)
    if found.webui:
        _line(
            console, "chat page", found.webui.url, found.webui.ready, found.webui.state, found.webui.problem
        )
    if not all(replica.ready for replica in found.replicas):
        console.print(f"Why: deploy diagnose {escape(inventory)}", soft_wrap=True)


def _replica(found: ReplicaStatus, console: Console, *, alone: bool) -> None:
    if not alone:
        console.print(f"[bold]{escape(found.service)}, replica {found.index}[/]")
    table = Table("rank", "host", "container", "since", "image", box=None)
    for rank in found.ranks:
        state = f"{rank.state}: {rank.problem}" if rank.problem else rank.state
        table.add_row(
            str(rank.rank),
            rank.host,
            escape(state),
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
    if found.supervisor:
        console.print(escape(_supervision(found.supervisor)), soft_wrap=True)
    if found.engine.ready:
        console.print(f"load    {shown.load(found.engine.load)}", soft_wrap=True)


def _supervision(found: Supervision) -> str:
    """The phase, since when, and how often and why the replica was started again."""
    parts = [f"{found.phase.replace('_', ' ')} for {duration(found.for_s)}"]
    parts += [found.text] if found.text else []
    parts += [f"{found.restarts} restarts, the last one: {found.last_reason}"] if found.restarts else []
    return "supervisor  " + "; ".join(parts)


def _arguments(found: ReplicaStatus, console: Console) -> None:
    for rank in found.ranks:
        if rank.argv:
            console.print(f"rank {rank.rank}  {escape(shlex.join(rank.argv))}", soft_wrap=True)


def _line(console: Console, what: str, url: str, ready: bool, more: str, problem: str | None) -> None:
    mark = "[green]ready[/]" if ready else "[red]not ready[/]"
    console.print(f"{what}  {url}  {mark}  {escape(problem or more)}", soft_wrap=True)
