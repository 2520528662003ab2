"""The container that the plan shows is the container that the role asks Docker for, field by field."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.headfirst.serving.plugins.module_utils import container_spec
from clusters import nodes
from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.prepare import Prepared, prepare
from headfirst.control.deployment.running.artifacts import Artifacts
from headfirst.control.deployment.verbs.check import _variables
from headfirst.decide.containers.spec import Container
from run_variables import up_variables

ROOT = Path(__file__).resolve().parents[2]
INVENTORIES = ["a100x4.ini", "a100x1-70b.ini", "lab.ini"]


def prepared(name: str) -> Prepared:
    return prepare([ROOT / "inventories" / name], [], probe=False)


def role_spec(variables: dict[str, Any]) -> dict[str, Any]:
    """`spec` as the role hands it to the module, with the module's defaults."""
    loader = DataLoader()
    own = loader.load_from_file(
        str(ROOT / "roles" / "engine" / "vars" / "main.yml"), trusted_as_template=True
    )
    given: dict[str, Any] = Templar(loader, variables={**own, **variables}).template(
        trust_as_template("{{ __engine_spec }}")
    )
    defaults = {key: option.get("default") for key, option in container_spec.SPEC_OPTIONS.items()}
    return {**defaults, **given}


def of_docker(arguments: dict[str, Any], spec: dict[str, Any]) -> Container:
    """A container's specification, read back from the arguments that Docker gets."""
    return Container(
        name="headfirst-engine",
        gpus=spec["gpus"],
        ulimits=spec["ulimits"],
        restart_policy=spec["restart_policy"],
        **arguments,
    )


@pytest.mark.parametrize("inventory", INVENTORIES)
def test_every_rank_is_created_as_planned(inventory: str) -> None:
    found = prepared(inventory)
    variables = up_variables(found.cluster, found.plan, Secrets(), Artifacts(Path("wheel")))
    for node in nodes(found.plan):
        spec = role_spec(variables[node.host])
        labels = spec.pop("labels")
        # What the role adds is the digest of the file that a rank reads, and only there.
        assert list(labels) == (["headfirst.config"] if "--config" in node.container.command else [])
        created = of_docker(container_spec.create_arguments(spec, {}), spec)
        assert created == node.container.model_copy(update={"files": {}})


@pytest.mark.parametrize("inventory", INVENTORIES)
def test_the_configuration_is_mounted_where_it_is_read(inventory: str) -> None:
    mounts = [
        any("engine.yaml" in volume for volume in node.container.volumes)
        for node in nodes(prepared(inventory).plan)
    ]
    assert mounts == [True] + [False] * (len(mounts) - 1)


def test_the_docker_run_line_is_the_specification() -> None:
    for node in nodes(prepared("a100x4.ini").plan):
        line = shlex.join(node.docker_run)
        assert "--restart" not in line
        for volume in node.container.volumes:
            assert f"--volume {volume}" in line
        assert node.docker_run[-len(node.container.command) :] == node.container.command


def test_the_comm_check_runs_in_the_planned_container() -> None:
    found = prepared("a100x4.ini")
    service = found.plan.services[0]
    variables = _variables(found.cluster, service, service.replicas[0], ["gloo"])
    for node in nodes(found.plan):
        assert variables[node.host]["comm_check_container"] == node.container.module_spec()
