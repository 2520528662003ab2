"""`deploy up`: bare nodes to a chat answer."""

from __future__ import annotations

from headfirst.control.cli import login_options, options
from headfirst.control.deployment.running.options import RunOptions

EXAMPLE = "Example: deploy up cluster.ini"


@login_options.accepted
def run(
    inventory: options.InventoryArgument = None,
    inventory_option: options.InventoryOption = None,
    extra_vars: options.ExtraVars = None,
    limit: options.Limit = None,
    tags: options.Tags = None,
    check: options.Check = False,
    diff: options.Diff = False,
    wait: options.Wait = 0.0,
    bundle: options.Bundle = None,
    signers: options.Signers = None,
    unsigned: options.Unsigned = False,
    older_bundle: options.OlderBundle = False,
    as_json: options.Json = False,
    plain: options.Plain = False,
    verbose: options.Verbose = 0,
) -> None:
    """Start the cluster: check, Docker, image, weights, ranks, chat page. Run it again after a stop."""
    from headfirst.control.cli.reporting import choose_reporter, print_summary
    from headfirst.control.deployment.verbs.up import up

    run_options = RunOptions(
        inventories=options.inventories(inventory, inventory_option),
        extra_vars=extra_vars or [],
        limit=limit,
        tags=tags or [],
        check=check,
        diff=diff,
        verbosity=verbose,
        wait_s=wait,
        bundle=options.bundle_request(bundle, signers, unsigned=unsigned, older=older_bundle),
    )
    with choose_reporter(as_json=as_json, plain=plain) as reporter:
        outcome = up(run_options, reporter)
    print_summary(outcome, as_json=as_json)
