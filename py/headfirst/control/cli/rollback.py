"""`deploy rollback`: back to the version that served before."""

from __future__ import annotations

from headfirst.control.cli import login_options, options
from headfirst.control.deployment.running.options import RunOptions

EXAMPLE = "Example: deploy rollback cluster.ini"


@login_options.accepted
def run(
    inventory: options.InventoryArgument = None,
    inventory_option: options.InventoryOption = None,
    extra_vars: options.ExtraVars = None,
    service: options.Service = None,
    wait: options.Wait = 0.0,
    as_json: options.Json = False,
    plain: options.Plain = False,
    verbose: options.Verbose = 0,
) -> None:
    """Start the version that served before, on all replicas. A second rollback undoes the first.

    Exit code 2: there is none, or --service names one of several replicas.
    The inventory is not changed, and the next `up` follows the inventory.
    """
    from headfirst.control.cli.reporting import choose_reporter, print_rollback
    from headfirst.control.deployment.verbs.rollback import rollback

    run_options = RunOptions(
        options.inventories(inventory, inventory_option),
        extra_vars or [],
        service=service,
        verbosity=verbose,
        wait_s=wait,
    )
    with choose_reporter(as_json=as_json, plain=plain) as reporter:
        found = rollback(run_options, reporter)
    print_rollback(found, run_options.inventories[0], as_json=as_json)
