"""Ray: an image that is known to lack it is refused before anything is brought, any other is examined."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from ansible_collections.headfirst.serving.plugins.module_utils.docker_client import DockerException
from ansible_collections.headfirst.serving.plugins.modules import image_info
from clusters import catalogued, on, with_settings
from headfirst.common.errors import InputError
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.plan.types import PlannedService

ROOT = Path(__file__).resolve().parents[2]
MODEL = "deepseek-ai/DeepSeek-R1-Distill-Llama-8B"
RAY = {"engine": "vllm", "engine_runtime": "ray"}
INVENTORY = f"[head]\nn0 ansible_host=192.0.2.1\n\n[all:vars]\nmodel={MODEL}\n"


def plan(cluster: Cluster, **settings: Any) -> PlannedService:
    return catalogued(on(with_settings(cluster, **settings), "2 x 1 x A100-80G")).services[0]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"engine_version": "0.31.0"},
        {"engine_image": "vllm/vllm-openai:v0.33.0-cu129"},
        {"engine_image": "docker.io/vllm/vllm-openai:v0.19.0"},
        {"engine_image": "vllm/vllm-openai:nightly"},
    ],
)
def test_the_projects_image_without_ray_is_refused(cluster: Cluster, settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="has no ray") as refused:
        plan(cluster, **RAY, **settings)
    assert "engine_image" in (refused.value.hint or "") and "engine_runtime" in (refused.value.hint or "")


@pytest.mark.parametrize(
    "settings",
    [
        {"engine_image": "registry.example/vllm/vllm-openai:v0.33.0"},  # a registry of the user
        {"engine_image": "acme/vllm-ray:v0.33.0"},
        {"engine_image_source": "tarball", "engine_image_tarball": "/images/vllm.tar"},
    ],
)
def test_another_image_is_planned_and_examined(cluster: Cluster, settings: dict[str, Any]) -> None:
    service = plan(cluster, **RAY, **settings)
    assert service.image_programs == ["ray"]
    assert any("must have ray" in note for note in service.notes)


def test_lmdeploys_own_image_has_ray(cluster: Cluster) -> None:
    service = plan(cluster, engine="lmdeploy")  # over two nodes its PyTorch engine needs Ray
    assert service.image_programs == ["ray"]
    assert not any("must have" in note for note in service.notes)


def test_vllm_alone_needs_no_program(cluster: Cluster) -> None:
    assert plan(cluster, engine="vllm").image_programs == []


def test_a_ray_cluster_of_the_user_is_refused(cluster: Cluster) -> None:
    settings = {"engine_image": "acme/vllm-ray:v0.33.0", "engine_env": {"RAY_ADDRESS": "192.0.2.9:6379"}}
    with pytest.raises(InputError, match="RAY_ADDRESS"):
        plan(cluster, **RAY, **settings)


@pytest.mark.parametrize(
    ("printed", "missing"), [(b"ray\n", ["nixl"]), (b"", ["ray", "nixl"]), (b"ray\nnixl\n", [])]
)
def test_a_container_searches_the_image_for_programs(printed: bytes, missing: list[str]) -> None:
    client = Mock()
    client.containers.run.return_value = printed
    assert image_info.missing(client, "sha256:1", ["ray", "nixl"]) == missing
    assert client.containers.run.call_args.kwargs["network_mode"] == "none"


def test_an_image_without_a_shell_lacks_all(cluster: Cluster) -> None:
    client = Mock()
    client.containers.run.side_effect = DockerException("sh: executable file not found")
    assert image_info.missing(client, "sha256:1", ["ray"]) == ["ray"]


@pytest.mark.parametrize("name", ["monitoring", "proxy", "router", "webui"])
def test_other_images_are_not_searched_for_the_engines_programs(name: str) -> None:
    """One run of Ansible may have the variables of all stages."""
    text = (ROOT / "playbooks" / f"{name}.yml").read_text("utf-8")
    assert text.count("engine_image_programs: []") == text.count("engine_image_name:") == 1
