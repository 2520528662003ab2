"""`deploy plan`: what `deploy up` would do, to the last flag."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headfirst.common.errors import InputError
from headfirst.control.cli import login_options, options

if TYPE_CHECKING:
    from headfirst.decide.plan.types import Plan

EXAMPLE = "Example: deploy plan cluster.ini --json"


@login_options.accepted
def run(
    inventory: options.InventoryArgument = None,
    inventory_option: options.InventoryOption = None,
    extra_vars: options.ExtraVars = None,
    probe: options.Probe = False,
    as_svg: Annotated[
        bool, typer.Option("--svg", help="Draw hosts, ranks and their connections as an SVG file.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="With --svg: write the drawing there.", show_default=False
        ),
    ] = None,
    bundle: options.Bundle = None,
    signers: options.Signers = None,
    unsigned: options.Unsigned = False,
    older_bundle: options.OlderBundle = False,
    as_json: options.Json = False,
) -> None:
    """Show ranks, memory, environment and the docker run line of every node. Needs no SSH.

    Exit code 2: the model does not fit into the memory of the GPUs.
    """
    from headfirst.control.cli.shown.plan import print_plan
    from headfirst.control.deployment.prepare import prepare

    if as_svg and as_json:
        raise InputError("--svg and --json exclude each other", hint="Leave one of them out.")
    if output and not as_svg:
        raise InputError("--output is for --svg", hint="deploy plan INVENTORY --svg -o plan.svg")
    inventories = options.inventories(inventory, inventory_option)
    request = options.bundle_request(bundle, signers, unsigned=unsigned, older=older_bundle)
    prepared = prepare(inventories, extra_vars or [], probe=probe, rates=probe, bundle=request)
    if prepared.bundle:
        from headfirst.control.cli.shown.bundle import print_sources, sources

        prepared.bundle.refuse(prepared.cluster, prepared.plan)
    for note in prepared.cluster.notes:
        typer.echo(f"note: {note}", err=True)
    if as_svg:
        _draw(prepared.plan, output)
    elif as_json and prepared.bundle:
        document = prepared.plan.model_dump(mode="json") | {"bundle": sources(prepared.bundle)}
        typer.echo(json.dumps(document, indent=2))
    elif as_json:
        typer.echo(prepared.plan.model_dump_json(indent=2, ensure_ascii=True))
    else:
        print_plan(prepared.plan)
        if prepared.bundle:
            print_sources(prepared.bundle)
    if any(service.fit.fits is False for service in prepared.plan.services):
        raise typer.Exit(InputError.exit_code)


def _draw(plan: Plan, output: Path | None) -> None:
    from headfirst.control.report.drawing import svg

    if output is None:
        typer.echo(svg(plan), nl=False)
        return
    options.write_file(output, svg(plan))
    typer.echo(f"Written to {output}", err=True)
