"""`deploy lab`: nodes on this machine."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.table import Table

from headfirst.control.cli import login_options, options
from headfirst.control.terminal import Terminal

if TYPE_CHECKING:
    from headfirst.control.lab.types import Lab

app = typer.Typer(no_args_is_help=True, help="Nodes on this machine: containers with systemd and sshd.")


@app.command(epilog="Example: deploy lab up lab.ini")
@login_options.accepted
def up(
    inventory: options.InventoryArgument = None,
    inventory_option: options.InventoryOption = None,
    extra_vars: options.ExtraVars = None,
    as_json: options.Json = False,
    plain: options.Plain = False,
) -> None:
    """Start the lab nodes of an inventory, and print how to reach them."""
    from headfirst.control.cli.reporting import choose_reporter
    from headfirst.control.deployment.running.local_work import ask_for_root, run_jobs
    from headfirst.control.lab import lifecycle as nodes

    lab = _lab(options.inventories(inventory, inventory_option), extra_vars or [])
    with choose_reporter(as_json=as_json, plain=plain) as reporter:
        ask_for_root(reporter)
        results, _ = run_jobs(
            reporter,
            "lab",
            "Nodes on this machine",
            {"lab": lambda advance: nodes.up(lab, advance, advance.warn)},
        )
    access = results["lab"]
    if not as_json:
        for node in lab.nodes:
            typer.echo(
                f"{node.name}: ssh -i {access.private_key} -o UserKnownHostsFile={access.known_hosts} "
                f"{access.user}@{node.address}"
            )


@app.command(epilog="Example: deploy lab status lab.ini")
@login_options.accepted
def status(
    inventory: options.InventoryArgument = None,
    inventory_option: options.InventoryOption = None,
    extra_vars: options.ExtraVars = None,
    as_json: options.Json = False,
) -> None:
    """Show the lab nodes of an inventory."""
    from headfirst.control.lab import lifecycle as nodes

    found = nodes.status(_lab(options.inventories(inventory, inventory_option), extra_vars or []))
    if as_json:
        typer.echo(json.dumps([asdict(node) for node in found], indent=2))
        return
    table = Table("node", "address", "state", "ssh")
    for node in found:
        table.add_row(node.name, node.address, node.state, "answers" if node.ssh else "no answer")
    Terminal().print(table)


@app.command(epilog="Example: deploy lab down lab.ini")
@login_options.accepted
def down(
    inventory: options.InventoryArgument = None,
    inventory_option: options.InventoryOption = None,
    extra_vars: options.ExtraVars = None,
    as_json: options.Json = False,
    plain: options.Plain = False,
) -> None:
    """Remove the lab nodes of an inventory: containers, volumes, network, keys."""
    from headfirst.control.cli.reporting import choose_reporter
    from headfirst.control.deployment.running.local_work import run_jobs
    from headfirst.control.lab import lifecycle as nodes

    lab = _lab(options.inventories(inventory, inventory_option), extra_vars or [])
    with choose_reporter(as_json=as_json, plain=plain) as reporter:
        run_jobs(reporter, "lab", "Remove the nodes", {"lab": lambda advance: nodes.down(lab, advance)})


def _lab(inventories: list[Path], extra_vars: list[str]) -> Lab:
    from headfirst.control.deployment.lab_nodes import required_lab
    from headfirst.control.inventory.inventory import load

    return required_lab(load(inventories, extra_vars))
