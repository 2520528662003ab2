"""`deploy check`: are the hosts ready?"""

from __future__ import annotations

import typer

from headfirst.cli import options
from headfirst.cli.reporting import choose_reporter, print_checked
from headfirst.deployment.check import check
from headfirst.deployment.options import RunOptions
from headfirst.errors import HeadfirstError

EXAMPLE = "Example: deploy check inventories/a100x4.ini"


def run(
    inventory: options.InventoryArgument = None,
    inventory_option: options.InventoryOption = None,
    extra_vars: options.ExtraVars = None,
    limit: options.Limit = None,
    as_json: options.Json = False,
    plain: options.Plain = False,
    verbose: options.Verbose = 0,
) -> None:
    """Look at every host before anything is changed; findings come with what to do about them.

    Exit code 0: ready; 1: ready, with warnings; 3: not ready.
    """
    run_options = RunOptions(
        options.inventories(inventory, inventory_option), extra_vars or [], limit, verbosity=verbose
    )
    with choose_reporter(as_json=as_json, plain=plain) as reporter:
        result = check(run_options, reporter)
    if print_checked(result, as_json=as_json):
        raise typer.Exit(HeadfirstError.exit_code)
