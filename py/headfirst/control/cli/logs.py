"""`deploy logs`: the ranks' logs, merged by time."""

from __future__ import annotations

from typing import Annotated

import typer

from headfirst.control.cli import login_options, options
from headfirst.control.terminal import Terminal

EXAMPLE = "Example: deploy logs cluster.ini --rank 1 --follow"


@login_options.accepted
def run(
    inventory: options.InventoryArgument = None,
    inventory_option: options.InventoryOption = None,
    extra_vars: options.ExtraVars = None,
    service: options.Service = None,
    rank: Annotated[
        str | None, typer.Option("--rank", metavar="RANK|HOST|router", help="Only this rank, or the routers.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines as they arrive.")] = False,
    tail: Annotated[
        int | None, typer.Option("--tail", min=0, help="Last lines per rank.", show_default=False)
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="10m|TIME", help="Only lines after this.", show_default=False),
    ] = None,
    timestamps: Annotated[bool, typer.Option("--timestamps", help="Show the time of each line.")] = False,
) -> None:
    """Show the logs of all ranks, or of one."""
    from headfirst.control.deployment.verbs.service import rank_logs, without_secrets
    from headfirst.control.inventory.inventory import load
    from headfirst.control.live.log_printer import print_logs
    from headfirst.control.live.logs import parse_since, stream_logs

    cluster = load(options.inventories(inventory, inventory_option), extra_vars or [])
    lines = stream_logs(
        rank_logs(cluster, service, rank),
        follow=follow,
        tail=tail,
        since=parse_since(since) if since else None,
    )
    print_logs(without_secrets(cluster, lines), Terminal(), timestamps=timestamps)
