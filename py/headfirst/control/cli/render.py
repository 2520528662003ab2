"""`deploy render`: the plan as files for other tools."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from headfirst.common.errors import InputError
from headfirst.control.cli.verb import Nodes, OutputFormat, Probe, verb
from headfirst.control.deployment.running.options import RunOptions


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
    chosen = RenderOptions(**{name: value for name, (value, _, _) in flags.items() if value is not None})  # type: ignore[arg-type]
    with with_nodes(run.inventories, nodes, probe=probe) as inventories:
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
