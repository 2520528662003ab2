"""What an engine says of itself reaches the roles as variables, and the roles' modules accept it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.parsing.dataloader import DataLoader
from ansible_collections.headfirst.serving.plugins.plugin_utils.engine_log_rules import profile
from headfirst.collection import collection_root
from headfirst.control.deployment.prepare import Prepared, prepare
from headfirst.control.deployment.running import inventory
from headfirst.control.deployment.running.role_vars import HostVars
from headfirst.control.deployment.running.role_vars.engine import replica_vars
from headfirst.control.deployment.running.role_vars.hosts import check_vars
from headfirst.decide import engines
from headfirst.decide.cluster.types import Cluster
from run_variables import up_of

INVENTORY = """[head]
node1 ansible_host=192.0.2.11 gpus=8 gpu=A100-80G nic=eth0 hca=none
[workers]
node2 ansible_host=192.0.2.12 gpus=8 gpu=A100-80G nic=eth0 hca=none
[all:vars]
model=deepseek-ai/DeepSeek-R1
model_source=modelscope
"""
SPEC = yaml.safe_load((collection_root() / "roles/engine/meta/argument_specs.yml").read_text())


def prepared(folder: Path, *settings: str) -> Prepared:
    path = folder / "cluster.ini"
    path.write_text(INVENTORY + "".join(f"{setting}\n" for setting in settings))
    return prepare([path], [], probe=False)


def as_ansible_reads(folder: Path, cluster: Cluster, variables: HostVars) -> dict[str, Any]:
    """The variables of the head, after the file that carries them."""
    path = folder / "plan.yml"
    inventory.write(path, cluster, variables, {})
    loaded: dict[str, Any] = DataLoader().load_from_file(str(path))["all"]["hosts"]["node1"]
    return loaded


@pytest.mark.parametrize("engine", engines.names())
def test_the_role_takes_what_the_engine_gives(tmp_path: Path, engine: str) -> None:
    made = prepared(tmp_path, f"engine={engine}")
    (service,) = made.plan.services
    variables = replica_vars(up_of(made.cluster, made.plan), service, service.replicas[0])
    found = as_ansible_reads(tmp_path, made.cluster, variables)
    options = SPEC["argument_specs"]["main"]["options"]
    given = {key: value for key, value in found.items() if key in options}
    checked = ArgumentSpecValidator(options).validate(given)
    assert not checked.error_messages
    readiness = checked.validated_parameters["engine_readiness"]
    expected = engines.get(engine).readiness("chat")
    assert (readiness["path"], readiness["probe_body"]) == (expected.path, expected.probe_body)
    assert readiness["answer"] == [str(key) for key in expected.answer]
    assert profile(found["engine_log"]) == profile(engines.get(engine).log())
    assert checked.validated_parameters["engine_supervision"]["path_generates"] is expected.generates


def test_limits_of_time_reach_the_role_as_the_plan_has_them(tmp_path: Path) -> None:
    made = prepared(tmp_path, "ready_timeout=700", "hang_timeout=70", "drain_timeout=7")
    (service,) = made.plan.services
    (found, _) = replica_vars(up_of(made.cluster, made.plan), service, service.replicas[0]).values()
    limits = service.readiness
    assert (limits.start_seconds, limits.silence_seconds, service.drain_seconds) == (700, 70, 7)
    assert (found["engine_ready_timeout"], found["engine_drain_timeout"]) == (700, 7)
    supervision = found["engine_supervision"]
    assert (supervision["start_seconds"], supervision["hang_seconds"]) == (700, 70)


@pytest.mark.parametrize(
    ("settings", "slow"),
    [
        ((), []),
        (('engine_args="--enable-torch-compile --mem-fraction-static 0.8"',), ["--enable-torch-compile"]),
    ],
)
def test_the_check_is_told_what_makes_a_start_slow(
    tmp_path: Path, settings: tuple[str, ...], slow: list[str]
) -> None:
    made = prepared(tmp_path, *settings)
    found = check_vars(made.cluster, made.plan)
    assert [own["check_slow_start_args"] for own in found.values()] == [slow, slow]
