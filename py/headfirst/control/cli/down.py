"""`deploy down` and `deploy release`: a cluster gives its hosts back."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from headfirst.common.errors import HeadfirstError, InputError
from headfirst.control.cli.verb import OutputFormat, verb
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.terminal import Terminal

if TYPE_CHECKING:
    from headfirst.control.deployment.verbs.down import DownTarget
    from headfirst.control.run.result import RunResult


@verb("deploy down cluster.ini", *("limit", "whole_service", "check", "wait", "json", "plain", "verbose"))
def down(
    run: RunOptions,
    output: OutputFormat,
    data: Annotated[
        bool, typer.Option("--data", help="Also remove /var/lib/headfirst: weights and chats.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --data: do not prompt.")] = False,
) -> None:
    """Stop the chat page and the ranks, and remove what Headfirst made; Docker and the images stay.

    With --service only the routers and ranks of a service: hosts, weights and the chat page stay.
    """
    from headfirst.control.deployment.verbs.down import down, target

    if data and run.service:
        raise InputError(
            "--data removes the weights and chats of all services, and --service names one",
            hint="Leave one of them out.",
        )
    cluster_target = target(run)
    for host, owner in cluster_target.foreign.items():
        Terminal(stderr=True, highlight=False, soft_wrap=True).print(
            f"[yellow]warning:[/] {host} is left alone: it belongs to {escape(str(owner))}"
        )
    if data and not run.check:
        _confirm(cluster_target, yes=yes)
    with output.reporter() as reporter:
        result = down(cluster_target, reporter, data=data)
    print_down(result, cluster_target, data=data, as_json=output.as_json)


@verb("deploy release cluster.ini", "limit", "wait", "json")
def release(
    run: RunOptions,
    output: OutputFormat,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", help="Release the hosts that another cluster of this name has."),
    ] = None,
) -> None:
    """Remove the owner record of hosts. Stops nothing: `deploy down` is the way to stop a service."""
    from headfirst.control.deployment.verbs.release import release

    done = release(run, cluster)
    if output.as_json:
        print(json.dumps({"event": "released", "hosts": sorted(done.hosts), "left": sorted(done.foreign)}))
        return
    console = Terminal(highlight=False, soft_wrap=True)
    for host, owner in done.hosts.items():
        console.print(f"{host}: released from {escape(str(owner))}")
    for host, owner in done.foreign.items():
        console.print(f"{host}: [yellow]not released[/], it belongs to {escape(str(owner))}")
    if not done.hosts:
        console.print("No host was released.")


def _confirm(target: DownTarget, *, yes: bool) -> None:
    """Print what will be deleted, and ask unless --yes was given."""
    from headfirst.control.deployment.verbs.down import data_bytes
    from headfirst.control.run.amounts import size

    console = Terminal(stderr=True, highlight=False, soft_wrap=True)
    name = target.cluster.name
    console.print(f"--data deletes /var/lib/headfirst (weights, chats, accounts) of cluster {escape(name)}:")
    for host, number in data_bytes(target).items():
        console.print(f"  {host}  {size(number)}")
    if yes:
        return
    if not sys.stdin.isatty():
        raise InputError(
            "--data deletes weights and chats, and there is no terminal for a prompt",
            hint="Add --yes to confirm.",
        )
    typed = typer.prompt(f"Type the cluster's name ({name}) to delete them", default="", show_default=False)
    if typed != name:
        raise HeadfirstError(
            "nothing was changed: the name was not typed", hint="Without --data the files stay."
        )


_PLACES = {
    "chat_page": "its entry in the chat page",
    "proxy": "its path in the proxy",
    "monitoring": "its alerts in Prometheus",
}


def print_down(result: RunResult, target: DownTarget, *, data: bool, as_json: bool) -> None:
    """What was stopped and what stays."""
    from headfirst.control.deployment.verbs.down import remaining

    changed, service, dependents = result.changed_total, target.service, remaining(target)
    if as_json:
        summary = {"event": "down", "changed": changed, "data_removed": data}
        print(json.dumps(summary | ({"service": str(service), "kept": dependents} if service else {})))
        return
    console = Terminal(highlight=False, soft_wrap=True)
    if target.options.check:
        console.print(f"Check mode: {changed} tasks would change something.")
        return
    console.print("Stopped." if changed else "Nothing was running.")
    if service:
        console.print("Its weights stay, and its hosts belong to the cluster.")
        if dependents:
            listed = ", ".join(_PLACES[place] for place in dependents)
            console.print(f"Until it is up again these fail: {listed}.")
        scope = f"--service {escape(str(service))}"
        console.print(f"  Start it     deploy up {target.cluster.inventories[0]} {scope}")
    elif not data:
        console.print(
            "Weights and chats stay in /var/lib/headfirst (and in weights_dir); --data removes the folder."
        )
