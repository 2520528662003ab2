"""`deploy models`: what the GPUs of an inventory can serve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headfirst.common.errors import InputError
from headfirst.control.cli import login_options, options
from headfirst.decide.model.task import Task

if TYPE_CHECKING:
    from headfirst.decide.plan.models import Models

EXAMPLE = "Example: deploy models cluster.ini --task chat"


@login_options.accepted
def run(
    inventory: options.InventoryArgument = None,
    inventory_option: options.InventoryOption = None,
    extra_vars: options.ExtraVars = None,
    task: Annotated[
        Task | None, typer.Option("--task", help="Only models for this task.", show_default=False)
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option("--engine", help="Plan for this engine. Default: the inventory's.", show_default=False),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", help="Print the inventory lines of this model only.", show_default=False),
    ] = None,
    probe: options.Probe = False,
    as_json: options.Json = False,
) -> None:
    """List every model of the catalogue that these GPUs can serve, the largest first. Needs no SSH.

    Each with precision, layout, replicas, tokens of KV cache, time for the weights, and the inventory lines.
    """
    from headfirst.control.deployment.verbs.models import models

    inventories = options.inventories(inventory, inventory_option)
    found = models(inventories, extra_vars or [], task=task, engine=engine, probe=probe)
    if model is not None:
        _print_lines(found, model)
    elif as_json:
        typer.echo(found.model_dump_json(indent=2, ensure_ascii=True))
    else:
        from headfirst.control.cli.shown.models import print_models

        print_models(found)


def _print_lines(found: Models, model: str) -> None:
    """The lines of one model, to be appended to an inventory; InputError where it cannot be served."""
    for offer in found.offers:
        if offer.model.lower() == model.lower():
            typer.echo("\n".join(offer.lines))
            return
    for refusal in found.refused:
        if refusal.model.lower() == model.lower():
            raise InputError(f"{refusal.model} cannot be served here. {refusal.reason}")
    raise InputError(f"the catalogue has no {model}", hint="List its models: deploy models INVENTORY")
