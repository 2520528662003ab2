"""Verbs that bring the service to a state: `deploy up`, `rollback`, `replace` and `remove`."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from headfirst.control.cli.verb import OutputFormat, verb
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.run.amounts import duration
from headfirst.control.run.result import RunResult
from headfirst.control.terminal import Terminal

if TYPE_CHECKING:
    from headfirst.control.deployment.verbs.membership import Change
    from headfirst.control.deployment.verbs.rollback import Rollback
    from headfirst.control.deployment.verbs.up import UpOutcome

_Host = Annotated[str, typer.Argument(metavar="HOST", help="The host to remove.")]


@verb(
    "deploy up cluster.ini",
    *("limit", "tags", "whole_service", "check", "diff", "wait", "bundle", "json", "plain", "verbose"),
)
def up(run: RunOptions, output: OutputFormat) -> None:
    """Start the cluster: check, Docker, image, weights, ranks, chat page. Run it again after a stop."""
    from headfirst.control.deployment.verbs.up import up

    with output.reporter() as reporter:
        outcome = up(run, reporter)
    print_summary(outcome, as_json=output.as_json)


@verb("deploy rollback cluster.ini", "service", "wait", "json", "plain", "verbose")
def rollback(run: RunOptions, output: OutputFormat) -> None:
    """Start the version that served before, on all replicas. A second rollback undoes the first.

    Exit code 2: there is none, or --service names one of several replicas.
    The inventory is not changed, and the next `up` follows the inventory.
    """
    from headfirst.control.deployment.verbs.rollback import rollback

    with output.reporter() as reporter:
        outcome = rollback(run, reporter)
    print_rollback(outcome, run.inventories[0], as_json=output.as_json)


@verb(
    "deploy replace cluster.ini node03 --with node05",
    *("check", "wait", "json", "plain", "verbose"),
    inventory="alone",
)
def replace(
    run: RunOptions,
    output: OutputFormat,
    host: _Host,
    spare: Annotated[str, typer.Option("--with", metavar="SPARE", help="A host of [spares].")],
    keep: Annotated[
        bool, typer.Option("--keep", help="HOST becomes a spare; without it HOST is removed.")
    ] = False,
) -> None:
    """Replace a host by a spare: stop its rank, change the inventory, start the replica again."""
    from headfirst.control.deployment.verbs.membership import replacement

    _carry_out(replacement(run, host, spare, keep=keep), run, output)


@verb(
    "deploy remove cluster.ini node03",
    *("check", "wait", "json", "plain", "verbose"),
    inventory="alone",
)
def remove(run: RunOptions, output: OutputFormat, host: _Host) -> None:
    """Remove a host: stop its rank, change the inventory, divide the services among the others."""
    from headfirst.control.deployment.verbs.membership import removal

    _carry_out(removal(run, host), run, output)


def _carry_out(change: Change, run: RunOptions, output: OutputFormat) -> None:
    """Print how the inventory changes, and but for check mode carry it out."""
    from headfirst.control.deployment.verbs.membership import carry_out

    if output.as_json:
        print(json.dumps({"event": "inventory_changes", "host": change.leaving, "diff": change.diff}))
    else:
        console = Terminal(highlight=False, soft_wrap=True)
        for line in change.diff:
            console.print(escape(line))
    if run.check:
        return
    with output.reporter() as reporter:
        outcome = carry_out(change, run, reporter)
    print_summary(outcome, as_json=output.as_json)


def print_summary(outcome: UpOutcome, *, as_json: bool) -> None:
    """Address, model, credentials, how to stop; and where the time went."""
    from headfirst.decide.plan.capabilities import sentence
    from headfirst.decide.plan.front import proxy

    plan, changed = outcome.plan, outcome.result.changed_total
    page = proxy.page(plan)
    services: list[dict[str, Any]] = [
        {
            "service": service.name,
            "api": proxy.api(plan, service),
            "model": service.served_model_name,
            "capabilities": service.capabilities.model_dump(),
            **({"measured": told.model_dump()} if (told := outcome.measured.get(str(service))) else {}),
        }
        for service in plan.services
    ]
    served = "engine" in {stage.stage for stage in outcome.result.stages}  # -t may leave it out
    if as_json:
        print(
            json.dumps(
                {
                    "event": "summary",
                    "changed": changed,
                    "served": served and not outcome.check,
                    "chat_page": page,
                    "services": services,
                    "credentials": str(outcome.credentials),
                    **({"ca": str(outcome.ca)} if outcome.ca else {}),
                    "stages": {stage.stage: round(stage.seconds, 1) for stage in outcome.result.stages},
                }
            )
        )
        return
    console = Terminal(highlight=False, soft_wrap=True)
    console.print(timing_table(outcome.result))
    console.print()
    if outcome.check:
        console.print(
            f"Check mode: {changed} tasks would change something." if changed else "Nothing would change."
        )
        return
    if not served:
        changes = f"{changed} changes made" if changed else "nothing changed"
        console.print(f"[bold green]Done[/], {changes}. These stages do not start or check the service.")
        _print_repairs(outcome.result, console)
        return
    changes = f"{changed} changes made." if changed else "Nothing to change: the service runs as planned."
    subject = f"Service {escape(str(outcome.service))}" if outcome.service else "The service"
    console.print(f"[bold green]{subject} is up.[/] {changes}")
    _print_repairs(outcome.result, console)
    if page:
        console.print(f"  Chat page    {page}")
    if plan.monitoring:
        console.print(f"  Prometheus   {plan.monitoring.prometheus_url} on {plan.monitoring.host}")
    if plan.monitoring and plan.monitoring.grafana_url:
        console.print(f"  Grafana      {plan.monitoring.grafana_url}   user admin")
    for service, planned in zip(services, plan.services, strict=True):
        console.print(f"  API          {', '.join(service['api'])}   model {service['model']}")
        console.print(escape(f"               {sentence(planned.capabilities)}"))
        if told := outcome.measured.get(str(planned)):
            console.print(escape(f"               {told.sentence}"))
    if plan.proxy:
        console.print(f"  API keys     deploy keys list {outcome.inventory}")
    if outcome.ca:
        console.print(f"  Trust        {outcome.ca}")
    console.print(f"  Credentials  {outcome.credentials}")
    scope = f" --service {escape(str(outcome.service))}" if outcome.service else ""
    console.print(f"  Ask it       deploy chat {outcome.inventory}{scope} 'Hello'")
    console.print(f"  Stop it      deploy down {outcome.inventory}{scope}")


def _print_repairs(result: RunResult, console: Terminal) -> None:
    """The files that the run repaired, and what has read them before."""
    for finding in result.findings:
        if finding.id == "weights-repaired":
            console.print(escape(f"  Repaired     {finding.host}: {finding.what}. {finding.fix}".rstrip()))


def print_rollback(outcome: Rollback, inventory: Path, *, as_json: bool) -> None:
    """Which version of each service serves, and what the next `up` will do."""
    if as_json:
        versions = {name: version.name if version else None for name, version in outcome.versions.items()}
        print(json.dumps({"event": "rollback", "versions": versions}))
        return
    console = Terminal(highlight=False, soft_wrap=True)
    console.print("[bold green]The previous version serves.[/]")
    for service, version in outcome.versions.items():
        if version is None:
            console.print(
                f"  {escape(service)}: unchanged. No other version has served on all of its replicas."
            )
        else:
            at = datetime.fromtimestamp(version.served_at, UTC).isoformat(timespec="seconds")
            console.print(f"  {escape(service)}: version {escape(version.name)}, which last started at {at}")
    console.print("  Routers, ports, the proxy and the chat page stay as the inventory has them.")
    console.print(f"  Correct the inventory, then run `deploy up {inventory}`, which follows it again.")


def timing_table(result: RunResult) -> Table:
    """A row per stage with its time and share of the whole, and the total (Ansible's start included)."""
    table = Table(title="Where the time went", title_justify="left", box=None, pad_edge=False)
    table.add_column("stage")
    table.add_column("time", justify="right")
    table.add_column("share", justify="right")
    for stage in result.stages:
        share = round(100 * stage.seconds / result.seconds) if result.seconds else 0
        table.add_row(stage.stage, duration(stage.seconds), f"{share} %")
    table.add_row("[bold]total", f"[bold]{duration(result.seconds)}", "")
    return table
