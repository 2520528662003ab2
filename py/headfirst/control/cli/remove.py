"""`deploy remove`: a host leaves the cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headfirst.control.cli import login_options, options
from headfirst.control.deployment.running.options import RunOptions

EXAMPLE = "Example: deploy remove cluster.ini node03"


@login_options.accepted
def run(
    inventory: Annotated[Path, typer.Argument(metavar="INVENTORY", show_default=False)],
    host: Annotated[str, typer.Argument(metavar="HOST", help="The host to remove.", show_default=False)],
    extra_vars: options.ExtraVars = None,
    check: Annotated[bool, typer.Option("--check", help="Show the change of the inventory only.")] = False,
    wait: options.Wait = 0.0,
    as_json: options.Json = False,
    plain: options.Plain = False,
    verbose: options.Verbose = 0,
) -> None:
    """Remove a host: stop its rank, change the inventory, divide the services among the others."""
    from headfirst.control.cli.shown.membership import print_and_carry_out
    from headfirst.control.deployment.verbs.membership import removal

    wanted = RunOptions([inventory], extra_vars or [], verbosity=verbose, wait_s=wait)
    change = removal(wanted, host)
    print_and_carry_out(change, wanted, check=check, as_json=as_json, plain=plain)
