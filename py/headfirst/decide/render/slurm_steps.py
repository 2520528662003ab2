"""Slurm: what a step of a job runs in, how each of its tasks gets its script, and the step of a router."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Literal

from headfirst.decide.containers.blanks import ADDRESS, head_address_of
from headfirst.decide.plan.front.router import scheduled_command
from headfirst.decide.plan.types import PlannedReplica, PlannedRouter
from headfirst.decide.render import secret_files
from headfirst.decide.render.shell import command_line

ContainerOf = Literal["pyxis", "apptainer", "none"]

ROUTER_CARRIED = {"name", "image", "entrypoint", "command", "env_file"}  # fields of Container
ROUTER_ABOUT = {
    "pyxis": "HEADFIRST_ROUTER_IMAGE names another image of the router, or a .sqsh file.",
    "apptainer": "HEADFIRST_ROUTER_IMAGE names another image of the router, or a .sif file.",
    "none": "HEADFIRST_ROUTER_VENV names a virtual environment with smg; without it, HEADFIRST_VENV has smg.",
}


def environment(
    container: ContainerOf, program: str, image: str, mounts: Sequence[str], *, gpus: bool = False
) -> tuple[str, str]:
    """Lines before the start, and what is before the shell of a task, in an image with these mounts.

    `program` is in the names of variables: "" for the engine. `mounts` are words of the shell.
    """
    lower, upper = program.lower(), program.upper()
    if container == "none":
        return "", ""
    if container == "pyxis":
        return (
            f"{lower}image=${{HEADFIRST_{upper}IMAGE:-{shlex.quote(_enroot(image))}}}\n"
            f"{lower}mounts=({' '.join(mount.replace(',', '+') for mount in mounts)})\n",
            f'--container-image="${lower}image" '
            f'--container-mounts="$(IFS=,; echo "${{{lower}mounts[*]}}")" \\\n'
            "  --no-container-mount-home --no-container-entrypoint \\\n  ",
        )
    binds = " ".join(f"--bind {mount}" for mount in mounts)
    graphics = "--nv " if gpus else ""
    return (
        f"{lower}image=${{HEADFIRST_{upper}IMAGE:-{shlex.quote(f'docker://{image}')}}}\n",
        f'apptainer exec {graphics}--no-home {binds} "${lower}image" \\\n  ',
    )


def activated(variable: str) -> str:
    """Enters the virtual environment that a variable names; its script reads variables that may be unset."""
    return f'set +u\n. "${variable}/bin/activate"\nset -u\n'


def exported(path: str) -> str:
    """Puts the lines NAME=VALUE of a file into the environment, as they are."""
    return f'while IFS= read -r line; do export "${{line?}}"; done <"{path}"\n'


def from_input(text: str, end: str, after: str = "") -> str:
    """A shell on every host that reads `text`: srun hands its input to all tasks."""
    while end in text:
        end += "_END"
    return f"bash -s <<'{end}'{after}\nset -euo pipefail\n{text}{end}\n"


def router_step(
    router: PlannedRouter,
    replicas: Sequence[PlannedReplica],
    first_hosts: Mapping[int, int],
    container: ContainerOf,
) -> str:
    """Starts the router. `first_hosts`: by replica, the number of its first host in the job."""
    path = secret_files.of_env_file(router).path
    before, inside = environment(container, "router_", router.container.image, [f'"$router_env:{path}:ro"'])
    variables = {head_address_of(index): f"{{addresses[{host}]}}" for index, host in first_hosts.items()}
    variables[ADDRESS] = "{addresses[0]}"
    words = [router.container.entrypoint or "python3", *scheduled_command(router, replicas)]
    activate = ""
    if container == "none":
        path = "$router_env"
        before = "export HEADFIRST_ROUTER_VENV=${HEADFIRST_ROUTER_VENV:-$HEADFIRST_VENV}\n"
        activate = activated("HEADFIRST_ROUTER_VENV")
    text = (
        'read -ra addresses <<<"$HEADFIRST_ADDRESSES"\n'
        f"{activate}{exported(path)}"
        f"exec {command_line(words, '', variables)} </dev/null\n"
    )
    return (
        f"{before}srun --overlap --nodes=1 --ntasks=1 --relative=0 --kill-on-bad-exit=1 --cpu-bind=none \\\n"
        f"  --output=%x-%j-router.log {inside}{from_input(text, 'ROUTER', ' &')}steps+=($!)\n"
    )


def _enroot(image: str) -> str:
    """enroot writes # after a registry: it has a dot or a port before the first slash."""
    first, slash, rest = image.partition("/")
    return f"{first}#{rest}" if slash and ("." in first or ":" in first) else image
