"""`deploy render`: the plan as files for docker run, Docker Compose, Slurm or Kubernetes."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from headfirst.common.errors import InputError
from headfirst.control.cli import login_options, options

EXAMPLE = "Example: deploy render cluster.ini --to compose -o out"


@login_options.accepted
def run(
    inventory: options.InventoryArgument = None,
    inventory_option: options.InventoryOption = None,
    extra_vars: options.ExtraVars = None,
    to: Annotated[
        Literal["docker-run", "compose", "slurm", "kubernetes"], typer.Option("--to", help="For what.")
    ] = ...,  # type: ignore[assignment]  # required
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="DIR", help="Folder of the files.", show_default=False),
    ] = None,
    container_program: Annotated[
        Literal["docker", "nerdctl"] | None,
        typer.Option(
            "--with", help="docker-run: the program (that of container_runtime).", show_default=False
        ),
    ] = None,
    slurm_container: Annotated[
        Literal["pyxis", "apptainer", "none"] | None,
        typer.Option(
            "--container",
            help="slurm: what runs the image (pyxis); none: a virtual environment.",
            show_default=False,
        ),
    ] = None,
    storage: Annotated[
        Literal["hostpath", "pvc"] | None,
        typer.Option("--storage", help="kubernetes: where the weights are (hostpath).", show_default=False),
    ] = None,
    rdma_resource: Annotated[
        str | None,
        typer.Option(
            "--rdma-resource",
            metavar="NAME",
            help="kubernetes: the RDMA resource of the device plugin (rdma/hca_shared_devices_a).",
            show_default=False,
        ),
    ] = None,
    probe: options.Probe = False,
    as_json: options.Json = False,
) -> None:
    """Print the plan as files for other tools, or write them to a folder. Changes no host.

    The files have no secrets: make-secrets.sh, one of them, creates the secrets where they are used.
    """
    from headfirst.control.deployment.verbs.render import Options, render, write

    inventories = options.inventories(inventory, inventory_option)
    given = {
        "container_program": (container_program, "--with", "docker-run"),
        "slurm_container": (slurm_container, "--container", "slurm"),
        "storage": (storage, "--storage", "kubernetes"),
        "rdma_resource": (rdma_resource, "--rdma-resource", "kubernetes"),
    }
    for value, option, target in given.values():
        if value is not None and target != to:
            raise InputError(f"{option} belongs to --to {target}", hint=f"Remove {option}.")
    chosen = Options(**{name: value for name, (value, _, _) in given.items() if value is not None})  # type: ignore[arg-type]
    rendered = render(inventories, extra_vars or [], to, chosen, command=_command(sys.argv[1:]), probe=probe)
    for note in rendered.cluster.notes:
        typer.echo(f"note: {note}", err=True)
    older = write(rendered.files, output) if output else []
    if as_json:
        found = [
            {"path": str((output or Path()) / name), "mode": f"{file.mode:04o}", "text": file.text}
            for name, file in rendered.files.items()
        ]
        report = {"to": to, "files": found, "left_out": rendered.left_out, "older": older}
        typer.echo(json.dumps(report, indent=2))
        return
    for name, file in rendered.files.items():
        typer.echo(f"{output / name}" if output else f"==> {name} <==\n{file.text}")
    for name in older:
        typer.echo(f"note: {output}/{name} is of an earlier run and no longer used", err=True)
    for what in rendered.left_out:
        typer.echo(f"note: not among the files: {what}", err=True)


def _command(words: list[str]) -> str:
    """The command as it was typed. Values of -e are shown where they are settings: others may be secrets."""
    from headfirst.decide.cluster.names import without_secrets

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
