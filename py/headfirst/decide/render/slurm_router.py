"""Slurm: the router of a service with prefill and decode replicas, on the first host of their job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headfirst.decide.containers.blanks import ADDRESS, head_address_of
from headfirst.decide.plan.front.router import scheduled_command
from headfirst.decide.plan.types import PlannedReplica, PlannedRouter
from headfirst.decide.render import secret_files
from headfirst.decide.render.shell import command_line
from headfirst.decide.render.slurm_steps import ContainerOf, activated, environment, exported, from_input

CARRIED = {"name", "image", "entrypoint", "command", "env_file"}  # fields of Container

ABOUT = {
    "pyxis": "HEADFIRST_ROUTER_IMAGE names another image of the router, or a .sqsh file.",
    "apptainer": "HEADFIRST_ROUTER_IMAGE names another image of the router, or a .sif file.",
    "none": "HEADFIRST_ROUTER_VENV names a virtual environment with smg; without it, HEADFIRST_VENV has smg.",
}


def step(
    router: PlannedRouter,
    replicas: Sequence[PlannedReplica],
    first_hosts: Mapping[int, int],
    container: ContainerOf,
) -> str:
    """Starts it. `first_hosts`: by replica, the number of its first host in the job."""
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
