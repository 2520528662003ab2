"""`deploy credentials`: show or replace the secrets of a cluster. The one verb that prints secrets."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from headfirst.common.errors import InputError
from headfirst.control.cli import login_options, options
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.terminal import Terminal

EXAMPLE = "Example: deploy credentials cluster.ini"


@login_options.accepted
def run(
    inventory: options.InventoryArgument = None,
    inventory_option: options.InventoryOption = None,
    extra_vars: options.ExtraVars = None,
    rotate: Annotated[
        bool, typer.Option("--rotate", help="Create new ones and apply them: the service restarts once.")
    ] = False,
    wait: options.Wait = 0.0,
    as_json: options.Json = False,
    plain: options.Plain = False,
) -> None:
    """Show the API key and the administrator's password, as every controller of the cluster has them."""
    from headfirst.control.cli.reporting import choose_reporter, print_summary
    from headfirst.control.deployment.certificate import keep_ca
    from headfirst.control.deployment.engine import known_key
    from headfirst.control.deployment.verbs.credentials import rotate as rotate_credentials
    from headfirst.control.deployment.verbs.credentials import show

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
        typer.echo(found.applied().model_dump_json(exclude_none=True, exclude={"named_keys", "local_ca"}))
        return
    console = Terminal(highlight=False, soft_wrap=True, markup=False)
    if cluster.has_proxy:
        console.print(
            "The proxy accepts the keys of `deploy keys`; the following ones are between the hosts."
        )
    for service in cluster.services:
        key = known_key(found, service)
        console.print(f"API key    {key or f'none yet, until: deploy up {cluster.inventories[0]}'}")
        urls = ", ".join(f"{url}/v1" for url in service.urls)
        console.print(f"API        {urls}   model {service.served_model_name}")
    if ca := keep_ca(cluster, found):
        console.print(f"Trust      {ca}")
    console.print(f"Chat page  {cluster.proxy_url if cluster.has_proxy else cluster.webui_url}")
    console.print(f"  sign in  {found.webui_admin_email}")
    console.print(f"  password {found.webui_admin_password}")
    if cluster.monitoring and found.grafana_admin_password:
        console.print(f"Grafana    http://{cluster.monitoring.address}:{cluster.settings.grafana_port}")
        console.print("  sign in  admin")
        console.print(f"  password {found.grafana_admin_password}")
