"""What a run prints while it works, and its summary."""

from __future__ import annotations

import json
import sys
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.markup import escape

from headfirst.control.deployment.verbs.rollback import Rollback
from headfirst.control.deployment.verbs.up import Outcome
from headfirst.control.run.reporters.json_events import JsonReporter
from headfirst.control.run.reporters.live import LiveReporter
from headfirst.control.run.reporters.plain import PlainReporter
from headfirst.control.run.reporters.reporter import Reporter
from headfirst.control.run.result import RunResult
from headfirst.control.run.timing import timing_table
from headfirst.control.terminal import Terminal
from headfirst.decide.plan.proxy import service_name


def choose_reporter(*, as_json: bool, plain: bool) -> AbstractContextManager[Reporter]:
    """JSON events if asked; a live display on a terminal; plain lines elsewhere."""
    if as_json:
        return JsonReporter(sys.stdout)
    console = Terminal(highlight=False)
    if plain or not console.is_terminal:
        return PlainReporter(sys.stdout)
    return LiveReporter(console)


def print_summary(outcome: Outcome, *, as_json: bool) -> None:
    """Address, model, credentials, how to stop; and where the time went."""
    plan, changed = outcome.plan, outcome.result.changed_total
    page = (plan.proxy.url if plan.proxy else plan.webui.url) if plan.webui else None
    paths = {service.name: service.path for service in plan.proxy.services} if plan.proxy else {}
    services: list[dict[str, Any]] = [
        {
            "service": service.name,
            "api": [f"{plan.proxy.url}{paths[service_name(service.name)]}"]
            if plan.proxy
            else [f"{url}/v1" for url in service.urls],
            "model": service.served_model_name,
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
        made = f"{changed} changes made" if changed else "nothing changed"
        console.print(f"[bold green]Done[/], {made}. These stages do not start or check the service.")
        return
    made = f"{changed} changes made." if changed else "Nothing to change: the service runs as planned."
    console.print(f"[bold green]The service is up.[/] {made}")
    if page:
        console.print(f"  Chat page    {page}")
    if plan.monitoring:
        console.print(f"  Prometheus   {plan.monitoring.prometheus_url} on {plan.monitoring.host}")
    if plan.monitoring and plan.monitoring.grafana_url:
        console.print(f"  Grafana      {plan.monitoring.grafana_url}   user admin")
    for service in services:
        console.print(f"  API          {', '.join(service['api'])}   model {service['model']}")
    if plan.proxy:
        console.print(f"  API keys     deploy keys list {outcome.inventory}")
    if outcome.ca:
        console.print(f"  Trust        {outcome.ca}")
    console.print(f"  Credentials  {outcome.credentials}")
    console.print(f"  Ask it       deploy chat {outcome.inventory} 'Hello'")
    console.print(f"  Stop it      deploy down {outcome.inventory}")


def print_checked(result: RunResult, *, as_json: bool) -> int:
    """Findings that do not stop a deployment, and that all is ready; returns how many there are."""
    warnings = [finding for finding in result.findings if finding.severity == "warning"]
    if as_json:
        print(json.dumps({"event": "checked", "ready": True, "warnings": len(warnings)}))
        return len(warnings)
    console = Terminal(highlight=False, soft_wrap=True)
    for finding in warnings:
        console.print(f"[yellow]warning:[/] {escape(f'{finding.host}: {finding.what}. {finding.why}')}")
        console.print(f"  {escape(finding.fix)}")
    console.print("[bold green]Ready.[/] The checks found no errors.")
    return len(warnings)


def print_down(result: RunResult, *, data: bool, as_json: bool) -> None:
    """What was stopped and what stays."""
    if as_json:
        print(json.dumps({"event": "down", "changed": result.changed_total, "data_removed": data}))
        return
    console = Terminal(highlight=False, soft_wrap=True)
    console.print("Stopped." if result.changed_total else "Nothing was running.")
    if not data:
        console.print(
            "Weights and chats stay in /var/lib/headfirst (and in weights_dir); --data removes the folder."
        )


def print_rollback(found: Rollback, inventory: Path, *, as_json: bool) -> None:
    """Which version of each service serves, and what the next `up` will do."""
    if as_json:
        versions = {service: version.name if version else None for service, version in found.versions.items()}
        print(json.dumps({"event": "rollback", "versions": versions}))
        return
    console = Terminal(highlight=False, soft_wrap=True)
    console.print("[bold green]The previous version serves.[/]")
    for service, version in found.versions.items():
        if version is None:
            console.print(
                f"  {escape(service)}: unchanged. No other version has served on all of its replicas."
            )
        else:
            at = datetime.fromtimestamp(version.served_at, UTC).isoformat(timespec="seconds")
            console.print(f"  {escape(service)}: version {escape(version.name)}, which last started at {at}")
    console.print(f"  The next `deploy up {inventory}` follows the inventory again: correct it first.")
