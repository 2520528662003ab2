"""`deploy credentials` and `deploy keys`: who may ask the service. The one module that prints secrets."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from headfirst.common.errors import InputError
from headfirst.control.cli.mistakes import Verbs
from headfirst.control.cli.verb import OutputFormat, app, verb
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.terminal import Terminal

if TYPE_CHECKING:
    from headfirst.decide.cluster.types import Cluster, Service

keys = typer.Typer(cls=Verbs, no_args_is_help=True, help="API keys with names, for people and programs.")
app.add_typer(keys, name="keys")
_Name = Annotated[str, typer.Argument(help="Name of the key, such as that of its user.")]


@verb("deploy credentials cluster.ini", "whole_service", "wait", "json", "plain")
def credentials(
    run: RunOptions,
    output: OutputFormat,
    rotate: Annotated[
        bool, typer.Option("--rotate", help="Create new ones and apply them: the service restarts once.")
    ] = False,
) -> None:
    """Show the API key, the engines' admin key and the administrator's password.

    Every controller of the cluster has the same.
    With --service only the key and the address of a service.
    """
    from headfirst.control.deployment import api_keys
    from headfirst.control.deployment.certificate import keep_ca
    from headfirst.control.deployment.verbs.credentials import rotate as rotate_credentials
    from headfirst.control.deployment.verbs.credentials import show
    from headfirst.control.deployment.verbs.service import known_key, require_key

    if rotate and run.service:
        raise InputError(
            "--rotate replaces all credentials, and --service names one service",
            hint="Leave one of them out.",
        )
    if run.wait_s and not rotate:
        raise InputError("--wait is for --rotate", hint="Credentials are shown without a lock: leave it out.")
    if rotate:
        from headfirst.control.cli.up import print_summary

        with output.reporter() as reporter:
            outcome = rotate_credentials(run, reporter)
        print_summary(outcome, as_json=output.as_json)
        return
    if not output.as_json and not sys.stdout.isatty():
        raise InputError(
            "credentials are printed to a terminal only",
            hint="For a program: deploy credentials INVENTORY --json",
        )
    cluster, chosen, secrets = show(run)
    files = {
        str(service): str(path)
        for service in cluster.services
        if (path := api_keys.file_of(cluster, service))
    }
    if chosen and output.as_json:
        key, urls = require_key(secrets, chosen, cluster), [f"{url}/v1" for url in chosen.urls]
        file = {api_keys.SETTING: files[str(chosen)]} if str(chosen) in files else {}
        typer.echo(json.dumps({"service": str(chosen), "api_key": key, "api": urls, **file}))
        return
    if output.as_json:
        document = secrets.applied().model_dump(
            mode="json", exclude_none=True, exclude={"named_keys", "local_ca"}
        )
        document["engine_admin_key"] = secrets.engine_admin_key
        typer.echo(json.dumps(document | ({"api_key_files": files} if files else {})))
        return
    console = Terminal(highlight=False, soft_wrap=True, markup=False)
    if chosen:
        _print_key(console, cluster, chosen, require_key(secrets, chosen, cluster))
        return
    if cluster.has_proxy:
        console.print(
            "The proxy accepts the keys of `deploy keys`; the following ones are between the hosts."
        )
    for service in cluster.services:
        _print_key(console, cluster, service, known_key(secrets, service))
    console.print(f"Admin key  {secrets.engine_admin_key}   of the engines' own administration")
    if ca := keep_ca(cluster, secrets):
        console.print(f"Trust      {ca}")
    console.print(f"Chat page  {cluster.proxy_url if cluster.has_proxy else cluster.webui_url}")
    console.print(f"  sign in  {secrets.webui_admin_email}")
    console.print(f"  password {secrets.webui_admin_password}")
    if cluster.monitoring and secrets.grafana_admin_password:
        console.print(f"Grafana    http://{cluster.monitoring.address}:{cluster.settings.grafana_port}")
        console.print("  sign in  admin")
        console.print(f"  password {secrets.grafana_admin_password}")


def _print_key(console: Terminal, cluster: Cluster, service: Service, key: str | None) -> None:
    from headfirst.control.deployment import api_keys

    console.print(f"API key    {key or f'none yet, until: deploy up {cluster.inventories[0]}'}")
    if key and (origin := api_keys.origin(cluster, service, key)):
        console.print(f"  from     {origin}")
    urls = ", ".join(f"{url}/v1" for url in service.urls)
    console.print(f"API        {urls}   model {service.served_model_name}")


@verb(
    "deploy keys add cluster.ini alice --rate 60/min",
    *("whole_service", "wait", "json"),
    of=keys,
    inventory="required",
)
def add(
    run: RunOptions,
    output: OutputFormat,
    name: _Name,
    rate: Annotated[
        str | None,
        typer.Option("--rate", metavar="N/min", help="Requests that are accepted in a minute."),
    ] = None,
) -> None:
    """Create a key and print it once: only a hash of it is stored. It is valid immediately.

    With --service only for this service; without it for all.
    """
    from headfirst.control.deployment.verbs import keys

    added = keys.add(run, name, keys.requests_per_minute(rate))
    if output.as_json:
        typer.echo(json.dumps({"event": "key added", "name": name, "key": added.key, "urls": added.urls}))
        return
    console = Terminal(highlight=False, soft_wrap=True, markup=False)
    console.print(f"Key  {added.key}")
    for url in added.urls:
        console.print(f"API  {url}")
    console.print("The key is not shown again.")


@verb("deploy keys list cluster.ini", "json", of=keys)
def list_(run: RunOptions, output: OutputFormat) -> None:
    """List the keys by name, with date, service and limit."""
    from headfirst.control.deployment.verbs import keys

    records = keys.names(run)
    if output.as_json:
        listed = [{"name": name, **key.model_dump(exclude={"sha256"})} for name, key in records.items()]
        typer.echo(json.dumps(listed))
        return
    table = Table("name", "since", "service", "requests a minute", box=None)
    for name, key in records.items():
        table.add_row(name, key.created, key.service or "all", str(key.requests_per_minute or "no limit"))
    Terminal().print(table)


@verb("deploy keys revoke cluster.ini alice", "wait", "json", of=keys, inventory="required")
def revoke(run: RunOptions, output: OutputFormat, name: _Name) -> None:
    """Refuse a key from now on. Requests that it started are completed."""
    from headfirst.control.deployment.verbs import keys

    keys.revoke(run, name)
    if output.as_json:
        typer.echo(json.dumps({"event": "key revoked", "name": name}))
        return
    Terminal(highlight=False, soft_wrap=True, markup=False).print(f"{name} is refused now.")
