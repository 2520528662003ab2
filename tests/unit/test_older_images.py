"""Images of older versions, of another engine and of other programs: what cannot run in them is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from clusters import nodes, planned, with_hosts, with_settings
from headfirst.common.errors import InputError
from headfirst.control.inventory.inventory import load
from headfirst.decide import engines
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.model import catalogue
from headfirst.decide.plan.types import Plan

MODEL = "deepseek-ai/DeepSeek-R1-Distill-Llama-8B"
VLLM, SGLANG = "vllm/vllm-openai", "lmsysorg/sglang"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    path = tmp_path_factory.mktemp("cluster") / "cluster.ini"
    path.write_text(f"[head]\nn0 ansible_host=192.0.2.1\n\n[all:vars]\nmodel={MODEL}\n")
    return load([path])


def plan(cluster: Cluster, hosts: int, **settings: Any) -> Plan:
    checkpoint = catalogue.lookup(MODEL)
    assert checkpoint is not None
    first = cluster.hosts[0]
    listed = [
        replace(first, name=f"n{rank}", address=f"192.0.2.{rank + 1}", gpus=1, gpu="A100-80G")
        for rank in range(hosts)
    ]
    return planned(with_hosts(with_settings(cluster, **settings), listed), checkpoint)


@pytest.mark.parametrize(
    ("hosts", "settings", "lacking", "hint"),
    [
        (2, {"engine": "vllm", "engine_image": f"{VLLM}:v0.7.3"}, "--nnodes", "engine_runtime=ray"),
        (2, {"engine": "vllm", "engine_image": f"{VLLM}:v0.11.0"}, "--nnodes", "0.11.1"),
        (1, {"engine": "vllm", "engine_image": f"{VLLM}:v0.10.0", "task": "embedding"}, "--runner", "0.10.1"),
        (
            2,
            {
                "engine": "lmdeploy",
                "engine_image": "openmmlab/lmdeploy:v0.11.1-cu12.8",
                "engine_args": ["--backend", "turbomind"],
            },
            "--dist-init-addr",
            "0.12.0",
        ),
        (1, {"engine_image": f"{SGLANG}:v0.5.2"}, "--config", "0.5.3"),
        (1, {"engine_image": "registry.example.org/team/sglang-patched:v0.5.2"}, "--config", "0.5.3"),
        (1, {"engine_image": f"{SGLANG}:v0.4.6.post5-cu124"}, "--config", "0.5.3"),
    ],
)
def test_a_version_that_lacks_a_flag_of_the_plan_is_refused(
    cluster: Cluster, hosts: int, settings: dict[str, Any], lacking: str, hint: str
) -> None:
    with pytest.raises(InputError) as refused:
        plan(cluster, hosts, **settings)
    assert lacking in refused.value.what
    assert settings["engine_image"] in refused.value.what
    assert hint in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("hosts", "settings"),
    [
        (1, {"engine": "vllm", "engine_image": f"{VLLM}:v0.7.3"}),
        (2, {"engine": "vllm", "engine_image": f"{VLLM}:v0.7.3", "engine_runtime": "ray"}),
        (2, {"engine": "vllm", "engine_image": f"{VLLM}:v0.11.1"}),
        (2, {"engine": "vllm", "engine_image": f"{VLLM}:v1.0.0"}),
        (2, {"engine_image": f"{SGLANG}:v0.5.3rc0"}),
        (2, {"engine_image": f"{SGLANG}:v0.5.3.post1"}),
        (2, {"engine_image": f"{SGLANG}:latest"}),
        (1, {"engine_image": "registry.example.org/sglang-team/own:v0.3.0"}),  # a version of theirs
        (2, {"engine_image": f"{SGLANG}:v0.5.22"}),
    ],
)
def test_what_the_version_has_is_planned(cluster: Cluster, hosts: int, settings: dict[str, Any]) -> None:
    assert len(nodes(plan(cluster, hosts, **settings))) == hosts


@pytest.mark.parametrize("name", engines.names())
def test_the_flags_are_those_of_every_version_with_tables(name: str) -> None:
    for version in engines.versions(name):
        engine = engines.get(name, version)
        assert engine.first_versions().keys() <= engine.specification.options.keys()
        assert engine.lacking(version, list(engine.first_versions())) == []


@pytest.mark.parametrize(
    ("settings", "what", "hint"),
    [
        ({"engine_image": f"{VLLM}:v0.33.0"}, "is vLLM's", "engine=vllm"),
        ({"engine_image": f"registry.example.org:5000/{VLLM}:v0.33.0"}, "is vLLM's", "engine=vllm"),
        ({"engine": "vllm", "engine_image": f"{SGLANG}:latest"}, "is SGLang's", "engine=sglang"),
        ({"engine_image": "nvcr.io/nvidia/tritonserver:25.02-trtllm-python-py3"}, "has no SGLang", SGLANG),
        ({"engine_image": "nvcr.io/nvidia/pytorch:24.05-py3"}, "has no SGLang", SGLANG),
        ({"engine": "vllm", "engine_image": "ollama/ollama:0.9.0"}, "has no vLLM", VLLM),
    ],
)
def test_an_image_of_another_program_is_refused(
    cluster: Cluster, settings: dict[str, Any], what: str, hint: str
) -> None:
    with pytest.raises(InputError) as refused:
        plan(cluster, 1, **settings)
    assert what in refused.value.what
    assert hint in (refused.value.hint or "")


@pytest.mark.parametrize(
    "settings",
    [
        {"engine_image": "registry.example.org/team/sglang-and-vllm:v1"},
        {"engine_image": "registry.example.org/pytorch:v1"},
        {"engine": "vllm", "engine_image": "nvcr.io/nvidia/tritonserver:25.02-vllm-python-py3"},
        {"engine": "vllm", "engine_image": "nvcr.io/nvidia/vllm:25.09-py3"},
    ],
)
def test_an_image_that_may_have_the_engine_is_planned(cluster: Cluster, settings: dict[str, Any]) -> None:
    assert len(nodes(plan(cluster, 1, **settings))) == 1
