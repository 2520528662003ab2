"""`deploy lab`: nodes on this machine."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import typer
from rich.table import Table

from headfirst.control.cli.mistakes import Verbs
from headfirst.control.cli.verb import OutputFormat, app, verb
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.terminal import Terminal

if TYPE_CHECKING:
    from headfirst.control.lab.types import Lab

lab = typer.Typer(
    cls=Verbs, no_args_is_help=True, help="Nodes on this machine: containers with systemd and sshd."
)
app.add_typer(lab, name="lab")


@verb("deploy lab up lab.ini", "json", "plain", of=lab)
def up(run: RunOptions, output: OutputFormat) -> None:
    """Start the lab nodes of an inventory, and print how to reach them."""
    from headfirst.control.deployment.lab_nodes import lab_logins, required_lab, started
    from headfirst.control.deployment.running.local_work import ask_for_root, run_jobs
    from headfirst.control.inventory.inventory import load

    cluster = load(run.inventories, run.extra_vars)
    required_lab(cluster)  # refused before any work
    with output.reporter() as reporter:
        ask_for_root(reporter)
        run_jobs(reporter, "lab", "Nodes on this machine", {"lab": partial(started, cluster, ())})
    if not output.as_json:
        for name, login in lab_logins(cluster).items():
            typer.echo(f"{name}: {login.ssh_command()}")


@verb("deploy lab status lab.ini", "json", of=lab)
def status(run: RunOptions, output: OutputFormat) -> None:
    """Show the lab nodes of an inventory."""
    from headfirst.control.lab import lifecycle as nodes

    statuses = nodes.status(_lab(run))
    if output.as_json:
        typer.echo(json.dumps([asdict(node) for node in statuses], indent=2))
        return
    table = Table("node", "address", "state", "ssh")
    for node in statuses:
        table.add_row(node.name, node.address, node.state, "answers" if node.ssh else "no answer")
    Terminal().print(table)


@verb("deploy lab down lab.ini", "json", "plain", of=lab)
def down(run: RunOptions, output: OutputFormat) -> None:
    """Remove the lab nodes of an inventory: containers, volumes, network, keys."""
    from headfirst.control.deployment.running.local_work import run_jobs
    from headfirst.control.lab import lifecycle as nodes

    lab = _lab(run)
    with output.reporter() as reporter:
        run_jobs(reporter, "lab", "Remove the nodes", {"lab": lambda advance: nodes.down(lab, advance)})


def _lab(run: RunOptions) -> Lab:
    from headfirst.control.deployment.lab_nodes import required_lab
    from headfirst.control.inventory.inventory import load

    return required_lab(load(run.inventories, run.extra_vars))
