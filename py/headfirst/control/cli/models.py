"""`deploy models`: what the GPUs of an inventory can serve, and the catalogue of models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import HubName

from headfirst.common.errors import InputError
from headfirst.common.untrusted import for_terminal
from headfirst.control.cli.verb import Nodes, OutputFormat, Probe, verb
from headfirst.control.deployment.running.options import RunOptions
from headfirst.decide.model.task import Task

if TYPE_CHECKING:
    from headfirst.decide.plan.sizing.models import Models


@verb("deploy models cluster.ini --task chat", "json", unless="refresh")
def models(
    run: RunOptions,
    output: OutputFormat,
    task: Annotated[Task | None, typer.Option("--task", help="Only models for this task.")] = None,
    engine: Annotated[
        str | None, typer.Option("--engine", help="Plan for this engine. Default: the inventory's.")
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="ID",
            help="Print the inventory lines of this model only; with --refresh, read only these. Repeat.",
        ),
    ] = None,
    refresh: Annotated[
        bool,
        typer.Option("--refresh", help="Read the catalogue's models from the hub into your catalogue."),
    ] = False,
    model_source: Annotated[
        HubName | None,
        typer.Option("--model-source", help="With --refresh: the hub. Default: the inventory's."),
    ] = None,
    whole: Annotated[
        bool, typer.Option("--all", help="Every model, and why others are not served; without it the best.")
    ] = False,
    probe: Probe = False,
    nodes: Nodes = None,
) -> None:
    """List the models of the catalogue that these GPUs can serve, the best first. Needs no SSH.

    Each with precision, layout, replicas, tokens of KV cache, time for the weights, and the inventory lines.
    """
    from headfirst.control.deployment.verbs.models import models
    from headfirst.control.inventory.allocation import with_nodes

    if refresh:
        for option, value in {"--task": task, "--engine": engine, "--probe": probe, "--nodes": nodes}.items():
            if value:
                raise InputError(f"{option} is for a list of models", hint="Leave it or --refresh out.")
        _refresh(run, output, model or [], model_source)
        return
    if model_source:
        raise InputError(
            "--model-source is for --refresh", hint="For a list set model_source in the inventory."
        )
    if model and len(model) > 1:
        raise InputError("several --model are for --refresh", hint="Print the lines of one model.")
    with with_nodes(run.inventories, nodes, probe=probe) as inventories:
        chosen = model[0] if model else None
        survey = models(inventories, run.extra_vars, task=task, engine=engine, probe=probe, model=chosen)
    if chosen:
        _refuse_unserved(survey, chosen)
    if output.as_json:
        typer.echo(survey.model_dump_json(indent=2, ensure_ascii=True))
    elif chosen:
        typer.echo("\n".join(survey.offers[0].lines))
    else:
        from headfirst.control.cli.shown.models import print_models

        print_models(survey, whole=whole)


def _refresh(run: RunOptions, output: OutputFormat, ids: list[str], source: str | None) -> None:
    from headfirst.control.deployment.verbs.models import Refreshed, hub_of, refresh
    from headfirst.control.run.amounts import duration

    def report(model: Refreshed, done: int, total: int, seconds: float) -> None:
        rest = f", about {duration(seconds)} left" if done < total else ""
        reason = f": {model.reason}" if model.reason else ""
        typer.echo(
            for_terminal(f"{done} of {total}{rest}: {model.model} {model.state}{reason}"), err=output.as_json
        )

    result = refresh(source or hub_of(run.inventories, run.extra_vars), ids, report)
    if output.as_json:
        typer.echo(result.model_dump_json(indent=2))
    else:
        typer.echo(f"Written to {result.file}. Next: deploy models INVENTORY")
    if any(model.state == "failed" for model in result.models):
        raise typer.Exit(1)


def _refuse_unserved(survey: Models, model: str) -> None:
    """InputError where the survey of one model has no offer."""
    if survey.refused:
        refusal = survey.refused[0]
        raise InputError(f"{refusal.model} cannot be served here. {refusal.reason}")
    if not survey.offers:
        raise InputError(f"the catalogue has no {model}", hint="List its models: deploy models INVENTORY")
