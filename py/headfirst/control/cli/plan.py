"""Verbs that change no host: `deploy plan`, `render`, `models` and `variables`."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import HubName

from headfirst.common.errors import InputError
from headfirst.common.untrusted import for_terminal
from headfirst.control.cli.verb import OutputFormat, Probe, verb, write_file
from headfirst.control.deployment.running.options import RunOptions
from headfirst.decide.model.task import Task

if TYPE_CHECKING:
    from headfirst.decide.plan.sizing.models import Models
    from headfirst.decide.plan.types import Plan


Nodes = Annotated[
    int | None,
    typer.Option(
        "--nodes",
        min=1,
        max=254,  # addresses of 192.0.2.0/24
        help="Plan for this many hosts of a scheduler; the inventory lists none.",
    ),
]


@verb("deploy plan cluster.ini --json", "shown_hosts", "bundle", "json")
def plan(
    run: RunOptions,
    output: OutputFormat,
    probe: Probe = False,
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
    _refuse_probe(probe, nodes)
    with with_nodes(run.inventories, nodes) as inventories:
        prepared = prepare(
            inventories, run.extra_vars, probe=probe, rates=probe, bundle=run.bundle, limit=run.limit
        )
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


def _more(plan: Plan, inventories: Sequence[Path], *, shown: bool, scheduled: bool) -> str:
    """Where the rest is; nothing is started of a plan that does not fit."""
    words = shlex.join(["deploy", "plan", *map(str, inventories)])
    commands = "As scripts: deploy render --to docker-run. " if shown else f"Commands: {words} --commands. "
    return ("" if scheduled or plan.verdict.state == "unfit" else commands) + f"Everything: {words} --json"


def _refuse_probe(probe: bool, nodes: int | None) -> None:
    if probe and nodes:
        raise InputError(
            "--probe and --nodes exclude each other", hint="Hosts of a scheduler are not there yet."
        )


def _draw(plan: Plan, file: Path | None) -> None:
    from headfirst.control.report.drawing import svg

    if file is None:
        typer.echo(svg(plan), nl=False)
        return
    write_file(file, svg(plan))
    typer.echo(f"Written to {file}", err=True)


@verb("deploy render cluster.ini --to compose -o out", "json")
def render(
    run: RunOptions,
    output: OutputFormat,
    to: Annotated[
        Literal["docker-run", "compose", "slurm", "kubernetes"], typer.Option("--to", help="For what.")
    ],
    folder: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="DIR", help="Folder of the files.")
    ] = None,
    container_program: Annotated[
        Literal["docker", "nerdctl"] | None,
        typer.Option("--with", help="docker-run: the program (that of container_runtime)."),
    ] = None,
    slurm_container: Annotated[
        Literal["pyxis", "apptainer", "none"] | None,
        typer.Option("--container", help="slurm: what runs the image (pyxis); none: a virtual environment."),
    ] = None,
    storage: Annotated[
        Literal["hostpath", "pvc"] | None,
        typer.Option("--storage", help="kubernetes: where the weights are (hostpath)."),
    ] = None,
    rdma_resource: Annotated[
        str | None,
        typer.Option(
            "--rdma-resource",
            metavar="NAME",
            help="kubernetes: the RDMA resource of the device plugin (rdma/hca_shared_devices_a).",
        ),
    ] = None,
    probe: Probe = False,
    nodes: Nodes = None,
) -> None:
    """Print the plan as files for other tools, or write them to a folder. Changes no host.

    The files have no secrets: make-secrets.sh, one of them, creates the secrets where they are used.
    """
    from headfirst.control.deployment.verbs.render import RenderOptions, render, write
    from headfirst.control.inventory.allocation import with_nodes

    flags = {
        "container_program": (container_program, "--with", "docker-run"),
        "slurm_container": (slurm_container, "--container", "slurm"),
        "storage": (storage, "--storage", "kubernetes"),
        "rdma_resource": (rdma_resource, "--rdma-resource", "kubernetes"),
    }
    for value, option, target in flags.values():
        if value is not None and target != to:
            raise InputError(f"{option} belongs to --to {target}", hint=f"Remove {option}.")
    if nodes and to not in ("slurm", "kubernetes"):
        raise InputError("--nodes belongs to --to slurm and --to kubernetes", hint="List the hosts instead.")
    _refuse_probe(probe, nodes)
    chosen = RenderOptions(**{name: value for name, (value, _, _) in flags.items() if value is not None})  # type: ignore[arg-type]
    with with_nodes(run.inventories, nodes) as inventories:
        rendered = render(
            inventories, run.extra_vars, to, chosen, command=_command(sys.argv[1:]), probe=probe
        )
    for note in rendered.notes:
        typer.echo(f"note: {note}", err=True)
    older = write(rendered.files, folder) if folder else []
    if output.as_json:
        files = [
            {"path": str((folder or Path()) / name), "mode": f"{file.mode:04o}", "text": file.text}
            for name, file in rendered.files.items()
        ]
        report = {"to": to, "files": files, "left_out": rendered.left_out, "older": older}
        typer.echo(json.dumps(report, indent=2))
        return
    for name, file in rendered.files.items():
        typer.echo(f"{folder / name}" if folder else f"==> {name} <==\n{file.text}")
    for name in older:
        typer.echo(f"note: {folder}/{name} is of an earlier run and no longer used", err=True)
    for what in rendered.left_out:
        typer.echo(f"note: not among the files: {what}", err=True)


def _command(words: list[str]) -> str:
    """The command as it was typed. Values of -e are shown where they are settings: others may be secrets."""
    from headfirst.control.inventory.names import without_secrets

    shown, follows = ["deploy"], False
    for word in words:
        joined = next((option for option in ("--extra-vars=", "-e") if word.startswith(option)), "")
        if follows:
            shown.append(without_secrets(word))
        elif joined and word != "-e":
            shown.append(joined + without_secrets(word[len(joined) :]))
        else:
            shown.append(word)
        follows = not follows and word in ("-e", "--extra-vars")
    return shlex.join(shown)


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
    _refuse_probe(probe, nodes)
    with with_nodes(run.inventories, nodes) as inventories:
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


@verb("deploy variables weights", "json", inventory="none")
def variables(
    output: OutputFormat,
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="WORD", help="Only those with this word in name or meaning, those of the roles too."
        ),
    ] = None,
    roles: Annotated[bool, typer.Option("--roles", help="The variables of the roles too.")] = False,
) -> None:
    """Show the variables of an inventory with their defaults and meanings."""
    from headfirst.control.inventory.variables import find
    from headfirst.control.terminal import Terminal, wrapped

    matches = find(text or "", roles=roles)
    if not matches:
        raise InputError(
            f"no variable has {text!r} in its name or meaning", hint="All: deploy variables --roles"
        )
    if output.as_json:
        typer.echo(json.dumps([variable._asdict() for variable in matches], indent=2))
        return
    console = Terminal(highlight=False, markup=False)
    for variable in matches:
        default = f", default {variable.default}" if variable.default else ""
        default = ", set by the plan" if variable.decided else default
        console.print(f"{variable.name}  ({variable.scope}{default})", soft_wrap=True)
        console.print(wrapped(variable.description, console.width, "    "), soft_wrap=True)
