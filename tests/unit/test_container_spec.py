"""The `container` module's idea of what a container should be."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.headfirst.serving.plugins.module_utils import container_spec


def spec(**changes: Any) -> dict[str, Any]:
    """A spec as the module gets it, with all options that have a default."""
    defaults = {name: option.get("default") for name, option in container_spec.SPEC_OPTIONS.items()}
    return {**defaults, "image": "engine:1", "command": ["serve"], **changes}


def fingerprint(image_id: str = "sha256:a", secrets: dict[str, str] | None = None, **changes: Any) -> str:
    return container_spec.fingerprint(container_spec.canonical(spec(**changes), image_id, secrets or {}))


def test_same_spec_same_fingerprint_whatever_the_order() -> None:
    one = fingerprint(environment={"A": "1", "B": "2"})
    assert one == fingerprint(environment={"B": "2", "A": "1"})


@pytest.mark.parametrize(
    "changes",
    [
        {"command": ["serve", "--tp", "2"]},
        {"entrypoint": "vllm"},
        {"environment": {"A": "2"}},
        {"image_id": "sha256:b"},
        {"secrets": {"KEY": "two"}},
        {"gpus": "all"},
        {"labels": {"headfirst.config": "x"}},
        {"ulimits": {"memlock": -1}},
    ],
)
def test_every_change_changes_the_fingerprint(changes: dict[str, Any]) -> None:
    base: dict[str, Any] = {"environment": {"A": "1"}, "secrets": {"KEY": "one"}}
    assert fingerprint(**base) != fingerprint(**{**base, **changes})


def test_an_option_left_empty_is_an_option_not_given() -> None:
    assert fingerprint(gpus="", ipc_mode=None, ulimits={}) == fingerprint()


def test_secrets_are_in_the_environment_but_in_no_label() -> None:
    secrets = {"PASSWORD": "correct horse"}
    kept = container_spec.canonical(spec(), "sha256:a", secrets)
    assert "correct horse" not in json.dumps(container_spec.labels(kept))
    arguments = container_spec.create_arguments(spec(environment={"A": 1}), secrets)
    assert arguments["environment"] == {"A": "1", "PASSWORD": "correct horse"}


def test_labels_carry_the_fingerprint_and_the_spec() -> None:
    kept = container_spec.canonical(spec(labels={"headfirst.rank": 1}), "sha256:a", {})
    labels = container_spec.labels(kept)
    assert labels["headfirst.rank"] == "1"
    assert labels[container_spec.SPEC_LABEL] == container_spec.fingerprint(kept)
    assert json.loads(labels[container_spec.SPEC_JSON_LABEL]) == kept


def test_an_init_is_pid_1_and_nothing_is_privileged() -> None:
    arguments = container_spec.create_arguments(spec(network_mode="host"), {})
    assert arguments["init"] is True
    assert "privileged" not in arguments
    assert "ports" not in arguments


def test_env_file_keeps_values_as_they_are() -> None:
    text = "# made by a tool\n\nA=1\nB=x=y # z\nC=\n"
    assert container_spec.read_env_file(text) == {"A": "1", "B": "x=y # z", "C": ""}


def test_env_file_error_names_the_line_and_not_the_secret() -> None:
    with pytest.raises(ValueError, match="line 2") as caught:
        container_spec.read_env_file("A=1\nsecret\n")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("gpus", "request_"),
    [("all", {"count": -1}), ("4", {"count": 4}), ("device=0,2", {"device_ids": ["0", "2"]})],
)
def test_gpus_as_in_docker_run(gpus: str, request_: dict[str, Any]) -> None:
    assert container_spec.gpu_request(gpus) == {"capabilities": [["gpu"]], **request_}


def test_docker_gets_the_slice() -> None:
    arguments = container_spec.create_arguments(spec(cgroup_parent="headfirst-ranks.slice"), {})
    assert arguments["cgroup_parent"] == "headfirst-ranks.slice"
    assert "cgroup_parent" not in container_spec.create_arguments(spec(cgroup_parent=None), {})
