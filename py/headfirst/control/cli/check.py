"""`deploy check`: are the hosts ready? And with --comm: do the ranks reach each other, and how fast?"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from headfirst.common.errors import HeadfirstError, InputError, NotReadyError
from headfirst.control.cli import login_options, options
from headfirst.control.deployment.running.options import Backend, RunOptions
from headfirst.control.terminal import Terminal

EXAMPLE = "Example: deploy check cluster.ini"


@login_options.accepted
def run(
    inventory: options.InventoryArgument = None,
    inventory_option: options.InventoryOption = None,
    extra_vars: options.ExtraVars = None,
    limit: options.Limit = None,
    comm: Annotated[
        bool,
        typer.Option(
            "--comm", help="Instead, test the communication between the ranks in the engine's image."
        ),
    ] = False,
    backend: Annotated[
        Backend | None,
        typer.Option(
            "--backend",
            help="With --comm: only this. Default: gloo, and nccl where GPUs serve.",
            show_default=False,
        ),
    ] = None,
    service: options.Service = None,
    wait: options.Wait = 0.0,
    as_json: options.Json = False,
    plain: options.Plain = False,
    verbose: options.Verbose = 0,
) -> None:
    """Check every host before anything is changed; each finding has its fix.

    Exit code 0: ready; 1: ready, with warnings; 3: not ready.
    """
    from headfirst.control.cli.reporting import choose_reporter, print_checked
    from headfirst.control.deployment.verbs.check import check

    run_options = RunOptions(
        options.inventories(inventory, inventory_option),
        extra_vars or [],
        limit,
        service=service,
        verbosity=verbose,
        wait_s=wait,
    )
    if service and not comm:
        raise InputError("--service is for --comm", hint="Without it, deploy check reads every host.")
    if backend and not comm:
        raise InputError("--backend is for --comm", hint="deploy check INVENTORY --comm --backend gloo")
    if comm:
        _comm(run_options, backend, as_json=as_json, plain=plain)
        return
    with choose_reporter(as_json=as_json, plain=plain) as reporter:
        result = check(run_options, reporter)
    if print_checked(result, as_json=as_json):
        raise typer.Exit(HeadfirstError.exit_code)


def _comm(run_options: RunOptions, backend: Backend | None, *, as_json: bool, plain: bool) -> None:
    from headfirst.control.cli.reporting import choose_reporter
    from headfirst.control.cli.shown.comm import print_comm
    from headfirst.control.deployment.verbs.comm import comm

    with choose_reporter(as_json=as_json, plain=plain) as reporter:
        found = comm(run_options, reporter, backend)
    if as_json:
        print(json.dumps({"event": "comm", **found.model_dump()}))
    else:
        print_comm(found, Terminal(highlight=False, soft_wrap=True))
    if found.findings:
        raise typer.Exit((NotReadyError if found.failed else HeadfirstError).exit_code)
