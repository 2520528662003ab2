"""Every option of a planned container is carried out by each target, or stated in its files."""

from __future__ import annotations

import subprocess
from typing import Any, get_args

import pytest
from headfirst.control.deployment.verbs.render import RenderOptions, Target, files_of
from headfirst.decide.containers.spec import Container
from headfirst.decide.plan.types import Plan
from headfirst.decide.render import scheduled_options
from rendering import planned, sample
from together import together

TARGETS = get_args(Target)
# Fields whose values a scheduler's files have from other fields of the plan.
_SCHEDULED = {"entrypoint", "command", "environment", "gpus"}
_COMMAND = {"name", "files"}  # the text of a file is in the command
ELSEWHERE = {
    "docker-run": _COMMAND,
    "compose": _COMMAND,
    "slurm": _SCHEDULED | _COMMAND | {"devices", "shm_size"},  # those of the host
    "kubernetes": _SCHEDULED | _COMMAND,
}


def with_container(
    plan: Plan, container: type[Container] = Container, *, ranks: range = range(99), **changes: Any
) -> Plan:
    """The plan with these options in the container of each of these ranks."""
    services = []
    for service in plan.services:
        replicas = []
        for replica in service.replicas:
            nodes = [node for node in replica.nodes if node.rank not in ranks]
            for node in (node for node in replica.nodes if node.rank in ranks):
                fields = {**dict(node.container), **changes}
                nodes.append(node.model_copy(update={"container": container(**fields)}))
            replicas.append(replica.model_copy(update={"nodes": nodes}))
        services.append(service.model_copy(update={"replicas": replicas}))
    return plan.model_copy(update={"services": services})


def text(plan: Plan, target: Target) -> str:
    """All files without their header's digest, which every change of the plan changes."""
    files = files_of(plan, target, RenderOptions(), "x")
    return "\n".join(
        line for file in files.values() for line in file.text.splitlines() if "sha256:" not in line
    )


@together("target", TARGETS)
@together("field", sorted(Container.model_fields))
def test_no_option_is_dropped_without_a_word(field: str, target: Target) -> None:
    if field in ELSEWHERE[target]:
        return
    plan = planned("lab.ini")
    changed = with_container(plan, **{field: sample(field)})
    assert text(changed, target) != text(plan, target), f"--to {target} drops the option {field}"


def with_router(plan: Plan, **changes: Any) -> Plan:
    """The plan with these options in the container of every router."""
    services = []
    for service in plan.services:
        routers = []
        for router in service.routers:
            container = Container(**{**dict(router.container), **changes})
            routers.append(router.model_copy(update={"container": container}))
        services.append(service.model_copy(update={"routers": routers}))
    return plan.model_copy(update={"services": services})


@together("target", TARGETS)
@together("field", sorted(Container.model_fields))
def test_no_option_of_the_router_is_dropped_either(field: str, target: Target) -> None:
    if field in {*_COMMAND, "command", "env_file", *(ELSEWHERE[target] & _SCHEDULED - {"gpus"})}:
        return
    plan = planned("lab-disaggregated.ini")
    changed = with_router(plan, **{field: sample(field)})
    assert text(changed, target) != text(plan, target), f"--to {target} drops the option {field}"


@together("target", ["slurm", "kubernetes"])
@together("inventory", ["lab.ini", "a100x4.ini"])
@together("limit", [*scheduled_options.FLAGS, "rttime", "nice"])
def test_each_limit_is_set_or_stated(limit: str, inventory: str, target: Target) -> None:
    """Also memlock beside the capability IPC_LOCK, which the ranks with RDMA have."""
    made = text(with_container(planned(inventory), ulimits={limit: 1024 * 67}), target)
    assert f"limit {limit} " in made or f"ulimits {limit}={1024 * 67}" in made


@pytest.mark.parametrize("target", ["slurm", "kubernetes"])
def test_options_of_one_host_are_stated(target: Target) -> None:
    changed = with_container(planned("a100x4.ini"), ranks=range(1, 2), cgroup_parent="other.slice")
    assert 'cgroup_parent "other.slice"' in text(changed, target)


@pytest.mark.parametrize("target", ["slurm", "kubernetes"])
def test_an_option_that_nobody_has_written_yet_is_stated(target: Target) -> None:
    class Newer(Container):
        fictitious: int | None = None

    plan = planned("a100x4.ini")
    assert "fictitious" not in text(with_container(plan, Newer), target)
    assert "fictitious 7\n" in text(with_container(plan, Newer, fictitious=7), target)


@pytest.mark.parametrize("target", ["slurm", "kubernetes"])
def test_limits_are_set_by_the_shell_of_the_ranks(target: Target) -> None:
    plan = with_container(planned("lab.ini"), ulimits={"nofile": 65_537, "memlock": -1, "rttime": 5})
    made = text(plan, target)
    assert "limit nofile -n 65537 " in made
    assert "limit memlock -l unlimited " in made
    assert "ulimits rttime=5" in made


def test_a_pod_that_may_pin_memory_needs_no_limit() -> None:
    assert "limit memlock" not in text(planned("a100x4.ini"), "kubernetes")
    assert "RDMA may fail" in text(planned("a100x4.ini"), "slurm")


def test_a_limit_that_the_host_refuses_is_a_warning() -> None:
    lines = scheduled_options.limits({"nofile": 64, "memlock": -1}, {"memlock": ": RDMA may fail"})
    script = f"set -euo pipefail\nulimit -l 64\n{lines}ulimit -n\n"
    as_nobody = ["setpriv", "--reuid=65534", "--clear-groups"]
    done = subprocess.run([*as_nobody, "bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "64\n"
    assert done.stderr.startswith("warning: memlock is 64 KiB on ")
    assert done.stderr.endswith(", and the plan has unlimited: RDMA may fail\n")
