"""`deploy keys`: API keys with names."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.table import Table

from headfirst.control.cli import login_options, options
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.terminal import Terminal

app = typer.Typer(no_args_is_help=True, help="API keys with names, for people and programs.")
_Name = Annotated[str, typer.Argument(help="Name of the key, such as that of its user.")]


@app.command(epilog="Example: deploy keys add cluster.ini alice --rate 60/min")
@login_options.accepted
def add(
    inventory: options.InventoryArgument,
    name: _Name,
    inventory_option: options.InventoryOption = None,
    extra_vars: options.ExtraVars = None,
    service: Annotated[
        str | None, typer.Option("--service", help="Only for this service.", show_default=False)
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(
            "--rate", metavar="N/min", help="Requests that are accepted in a minute.", show_default=False
        ),
    ] = None,
    wait: options.Wait = 0.0,
    as_json: options.Json = False,
) -> None:
    """Create a key and print it once: only a hash of it is stored. It is valid immediately."""
    from headfirst.control.deployment.verbs import keys

    run_options = RunOptions(options.inventories(inventory, inventory_option), extra_vars or [], wait_s=wait)
    made = keys.add(run_options, name, service, keys.requests_per_minute(rate))
    if as_json:
        typer.echo(json.dumps({"event": "key added", "name": name, "key": made.key, "urls": made.urls}))
        return
    console = Terminal(highlight=False, soft_wrap=True, markup=False)
    console.print(f"Key  {made.key}")
    for url in made.urls:
        console.print(f"API  {url}")
    console.print("The key is not shown again.")


@app.command("list", epilog="Example: deploy keys list cluster.ini")
@login_options.accepted
def list_(
    inventory: options.InventoryArgument = None,
    inventory_option: options.InventoryOption = None,
    extra_vars: options.ExtraVars = None,
    as_json: options.Json = False,
) -> None:
    """List the keys by name, with date, service and limit."""
    from headfirst.control.deployment.verbs import keys

    found = keys.names(RunOptions(options.inventories(inventory, inventory_option), extra_vars or []))
    if as_json:
        typer.echo(
            json.dumps([{"name": name, **key.model_dump(exclude={"sha256"})} for name, key in found.items()])
        )
        return
    table = Table("name", "since", "service", "requests a minute", box=None)
    for name, key in found.items():
        table.add_row(name, key.created, key.service or "all", str(key.requests_per_minute or "no limit"))
    Terminal().print(table)


@app.command(epilog="Example: deploy keys revoke cluster.ini alice")
@login_options.accepted
def revoke(
    inventory: options.InventoryArgument,
    name: _Name,
    inventory_option: options.InventoryOption = None,
    extra_vars: options.ExtraVars = None,
    wait: options.Wait = 0.0,
    as_json: options.Json = False,
) -> None:
    """Refuse a key from now on. Requests that it started are completed."""
    from headfirst.control.deployment.verbs import keys

    run_options = RunOptions(options.inventories(inventory, inventory_option), extra_vars or [], wait_s=wait)
    keys.revoke(run_options, name)
    if as_json:
        typer.echo(json.dumps({"event": "key revoked", "name": name}))
        return
    Terminal(highlight=False, soft_wrap=True, markup=False).print(f"{name} is refused now.")
