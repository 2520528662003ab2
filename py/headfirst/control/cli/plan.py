"""`deploy plan`: what a run would do, without a change of a host."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headfirst.common.errors import InputError
from headfirst.control.cli.verb import Nodes, OutputFormat, Probe, verb, write_file
from headfirst.control.deployment.running.options import RunOptions

if TYPE_CHECKING:
    from headfirst.control.deployment.prepare import Prepared
    from headfirst.decide.plan.types import Plan


@verb("deploy plan cluster.ini --json", "shown_hosts", "bundle", "json")
def plan(
    run: RunOptions,
    output: OutputFormat,
    probe: Probe = False,
    image: Annotated[
        bool, typer.Option("--image", help="Ask the engine in its image, where the head has the image.")
    ] = False,
    nodes: Nodes = None,
    svg: Annotated[
        bool, typer.Option("--svg", help="Draw hosts, ranks and their connections as an SVG file.")
    ] = False,
    file: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="With --svg: write the drawing there."),
    ] = None,
    commands: Annotated[
        bool, typer.Option("--commands", help="The docker run lines too, with what differs by rank.")
    ] = False,
) -> None:
    """Show whether the model fits, warnings, and the choices with their reasons. Needs no SSH.

    Exit code 2: the model does not fit into the memory of the GPUs.
    """
    from headfirst.control.cli.shown.plan import print_plan
    from headfirst.control.deployment import api_keys
    from headfirst.control.deployment.prepare import prepare
    from headfirst.control.inventory.allocation import with_nodes
    from headfirst.decide.plan.sizing.alternatives import role_hint

    if svg and output.as_json:
        raise InputError("--svg and --json exclude each other", hint="Leave one of them out.")
    if file and not svg:
        raise InputError("--output is for --svg", hint="deploy plan INVENTORY --svg -o plan.svg")
    if commands and (svg or output.as_json or nodes):
        option = "--svg" if svg else "--json" if output.as_json else "--nodes"
        raise InputError(
            f"--commands and {option} exclude each other",
            hint="The hosts of a scheduler: deploy render." if nodes else "--json has every command.",
        )
    if run.limit and (svg or output.as_json):
        option = "--svg" if svg else "--json"
        raise InputError(f"-l and {option} exclude each other", hint=f"{option} has all hosts: leave -l out.")
    with with_nodes(run.inventories, nodes, probe=probe) as inventories:
        prepared = prepare(
            inventories, run.extra_vars, probe=probe, rates=probe, bundle=run.bundle, limit=run.limit
        )
        if image:
            prepared = _answered(prepared)
    if prepared.bundle:
        from headfirst.control.cli.bundle import print_sources, sources

        prepared.bundle.refuse(prepared.cluster, prepared.plan)
    for note in (*prepared.plan.notes, *api_keys.notes(prepared.cluster)):
        typer.echo(f"note: {note}", err=True)
    if svg:
        _draw(prepared.plan, file)
    elif output.as_json and prepared.bundle:
        document = prepared.plan.model_dump(mode="json") | {"bundle": sources(prepared.bundle)}
        typer.echo(json.dumps(document, indent=2))
    elif output.as_json:
        typer.echo(prepared.plan.model_dump_json(indent=2, ensure_ascii=True))
    else:
        hosts = {host.name for host in prepared.cluster.limited_hosts}
        print_plan(prepared.plan, hosts, commands=commands)
        if prepared.bundle:
            print_sources(prepared.bundle)
        typer.echo(_more(prepared.plan, run.inventories, shown=commands, scheduled=nodes is not None))
    unfit = [service for service in prepared.plan.services if service.unfit]
    if unfit and (svg or output.as_json):
        raise typer.Exit(InputError.exit_code)
    if unfit:
        role = unfit[0].unfit_role
        raise InputError(
            f"{unfit[0].served_model_name} does not fit into the memory of "
            + (f"the GPUs of its {role} replicas" if role else "its GPUs"),
            where=str(prepared.cluster.inventories[0]),
            hint="What fits is above, after `Instead:`."
            if unfit[0].alternatives
            else role_hint(role)
            if role
            else "`deploy models INVENTORY` lists what these GPUs can serve.",
        )


def _answered(prepared: Prepared) -> Prepared:
    """The plan with what the images answer; its progress is on stderr."""
    from headfirst.control.deployment.asked_images import answered
    from headfirst.control.run.reporters.plain import PlainReporter

    with PlainReporter(sys.stderr) as reporter:
        told = answered(prepared, reporter)
    for name in told.missing:
        typer.echo(f"note: the head has no {name}: `deploy up` asks it after the stage image.", err=True)
    return told.prepared


def _more(plan: Plan, inventories: Sequence[Path], *, shown: bool, scheduled: bool) -> str:
    """Where the rest is; nothing is started of a plan that does not fit."""
    words = shlex.join(["deploy", "plan", *map(str, inventories)])
    commands = "As scripts: deploy render --to docker-run. " if shown else f"Commands: {words} --commands. "
    return ("" if scheduled or plan.verdict.state == "unfit" else commands) + f"Everything: {words} --json"


def _draw(plan: Plan, file: Path | None) -> None:
    from headfirst.control.report.drawing import svg

    if file is None:
        typer.echo(svg(plan), nl=False)
        return
    write_file(file, svg(plan))
    typer.echo(f"Written to {file}", err=True)
