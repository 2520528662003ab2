"""`deploy credentials`: show or replace the secrets of a cluster. The one verb that prints secrets."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from headfirst.cli import login_options, options
from headfirst.deployment.options import RunOptions
from headfirst.errors import InputError
from headfirst.terminal import Terminal

EXAMPLE = "Example: deploy credentials cluster.ini"


@login_options.accepted
def run(
    inventory: options.InventoryArgument = None,
    inventory_option: options.InventoryOption = None,
    extra_vars: options.ExtraVars = None,
    rotate: Annotated[
        bool, typer.Option("--rotate", help="Make new ones and apply them: the service restarts once.")
    ] = False,
    wait: options.Wait = 0.0,
    as_json: options.Json = False,
    plain: options.Plain = False,
) -> None:
    """Show the API key and the administrator's password, as every controller of the cluster has them."""
    from headfirst.cli.reporting import choose_reporter, print_summary
    from headfirst.deployment.credentials import rotate as rotate_credentials
    from headfirst.deployment.credentials import show

    run_options = RunOptions(options.inventories(inventory, inventory_option), extra_vars or [], wait_s=wait)
    if rotate:
        with choose_reporter(as_json=as_json, plain=plain) as reporter:
            outcome = rotate_credentials(run_options, reporter)
        print_summary(outcome, as_json=as_json)
        return
    if not as_json and not sys.stdout.isatty():
        raise InputError(
            "credentials are printed to a terminal only",
            hint="For a program: deploy credentials INVENTORY --json",
        )
    cluster, found = show(run_options)
    if as_json:
        typer.echo(found.applied().model_dump_json(exclude_none=True))
        return
    console = Terminal(highlight=False, soft_wrap=True, markup=False)
    console.print(f"API key    {found.engine_api_key}")
    console.print(f"API        {cluster.engine_url}/v1   model {cluster.served_model_name}")
    console.print(f"Chat page  {cluster.webui_url}")
    console.print(f"  sign in  {found.webui_admin_email}")
    console.print(f"  password {found.webui_admin_password}")
