"""`deploy render`: the plan as files for other tools, and writing them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headfirst.common.errors import InputError
from headfirst.common.state_files import replace_file
from headfirst.control.deployment.prepare import prepare
from headfirst.decide.plan.types import Plan
from headfirst.decide.render import compose, docker_run, kubernetes, slurm, slurm_steps
from headfirst.decide.render.files import Files, header, is_ours

Target = Literal["docker-run", "compose", "slurm", "kubernetes"]
_ON_HOSTS = ("docker-run", "compose")


@dataclass(frozen=True)
class RenderOptions:
    """What the targets leave to the person; each is of one target."""

    container_program: Literal["docker", "nerdctl"] | None = None  # None: the plan's runtime
    slurm_container: slurm_steps.ContainerOf = "pyxis"
    storage: kubernetes.Storage = "hostpath"
    rdma_resource: str = "rdma/hca_shared_devices_a"


@dataclass(frozen=True)
class Rendered:
    """`left_out`: what the plan has and the target does not, a sentence each; `notes`: those of the plan."""

    notes: list[str]
    files: Files
    left_out: list[str]


def render(
    inventories: Sequence[Path],
    extra_vars: Sequence[str],
    target: Target,
    options: RenderOptions,
    *,
    command: str,
    probe: bool = False,
) -> Rendered:
    """The files of the plan. InputError where it does not fit, or has what the target cannot do."""
    prepared = prepare(inventories, extra_vars, probe=probe, ports=probe)
    _refuse(prepared.plan, target)
    files = files_of(prepared.plan, target, options, command)
    return Rendered(prepared.plan.notes, files, _left_out(prepared.plan, target))


def files_of(plan: Plan, target: Target, options: RenderOptions, command: str) -> Files:
    """The files of a plan that the target can carry out."""
    top = header(plan, command)
    if target == "docker-run":
        return docker_run.files(plan, top, options.container_program or plan.container_runtime)
    if target == "compose":
        return compose.files(plan, top)
    if target == "slurm":
        return slurm.files(plan, top, options.slurm_container)
    return kubernetes.files(plan, top, kubernetes.Options(options.storage, options.rdma_resource))


def write(files: Files, folder: Path) -> list[str]:
    """Write the files; the names of older ones of ours there that are no longer made.

    InputError, before anything is written, where a file is not ours.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        there = {path.name: path for path in folder.iterdir()}
        for name in files.keys() & there.keys():
            if not _is_our_file(there[name]):
                raise InputError(
                    f"{there[name]} exists and was not made by `deploy render`",
                    hint="Move it away, or choose another folder with -o.",
                )
        for name, file in files.items():
            replace_file(folder / name, file.text, file.mode)
    except OSError as error:
        raise InputError(
            f"{error.filename or folder} cannot be written: {error.strerror}",
            hint="Choose another folder with -o.",
        ) from None
    return sorted(name for name, path in there.items() if name not in files and _is_our_file(path))


def _is_our_file(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return is_ours(file.read(4096).decode("utf-8", errors="replace"))


def _refuse(plan: Plan, target: Target) -> None:
    for service in plan.services:
        if service.unfit:
            raise InputError(
                f"{service.served_model_name} does not fit: {service.unfit}",
                hint="`deploy plan` shows the memory term by term, and the alternatives.",
            )
    if target in _ON_HOSTS and plan.proxy:
        raise InputError(
            f"--to {target} has no proxy, and this plan's chat page and keys are behind one",
            hint="Render it without: -e tls=none, and no proxy settings; or use deploy up.",
        )


def _left_out(plan: Plan, target: Target) -> list[str]:
    parts: Mapping[str, bool] = {
        "the supervisors, which start all ranks of a replica again when one fails": target in _ON_HOSTS,
        "the firewall rules that close the ports of the ranks to other hosts": True,
        "monitoring": plan.monitoring is not None,
        "spares": bool(plan.spares),
        "the chat page": plan.webui is not None and target not in _ON_HOSTS,
        "the router": target not in _ON_HOSTS
        and any(service.routers and not service.required_routers for service in plan.services),
        "the proxy": plan.proxy is not None,
    }
    return [what for what, there in parts.items() if there]
