"""Slurm: what a step of a job runs in, and how each of its tasks gets its script."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Literal

ContainerOf = Literal["pyxis", "apptainer", "none"]


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


def _enroot(image: str) -> str:
    """enroot writes # after a registry: it has a dot or a port before the first slash."""
    first, slash, rest = image.partition("/")
    return f"{first}#{rest}" if slash and ("." in first or ":" in first) else image
