"""The launch commands of one inventory on each engine: only `engine=` changes."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from clusters import catalogued, nodes, read
from headfirst.decide.cluster.settings import ServiceSettings
from headfirst.decide.plan.types import Plan

ENGINE = ServiceSettings().engine_port
ONE = "[head]\nnode1 ansible_host=192.0.2.1\n"
TWO = f"{ONE}[workers]\nnode2 ansible_host=192.0.2.2\n"
TENSOR_PARALLEL = {"--tp", "-tp", "--tp-size", "--tensor-parallel-size"}


def planned(folder: Path, hosts: str, engine: str, model: str, more: str) -> Plan:
    network = "nic=eth0\nhca=mlx5_0\nib_gid_index=3\n"
    text = f"{hosts}[all:vars]\n{network}model={model}\nengine={engine}\n{more}\n"
    return catalogued(read(folder, text))


def value(command: list[str], flags: set[str]) -> str:
    return next(following for word, following in itertools.pairwise(command) if word in flags)


@pytest.mark.parametrize("engine", ["sglang", "vllm", "lmdeploy"])
def test_a_32b_model_on_four_gpus(tmp_path: Path, engine: str) -> None:
    plan = planned(tmp_path, ONE, engine, "Qwen/QwQ-32B", "gpus=4\ngpu=A100-80G")
    command = nodes(plan)[0].container.command
    assert value(command, TENSOR_PARALLEL) == "4"
    assert any("QwQ-32B" in word for word in command)
    assert f"{ENGINE}" in command
    assert plan.services[0].fit.fits


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_llama_405b_on_sixteen_gpus(tmp_path: Path, engine: str) -> None:
    plan = planned(
        tmp_path,
        TWO,
        engine,
        "meta-llama/Llama-3.1-405B-Instruct",
        "gpus=8\ngpu=H100-80G\ntensor_parallel=16",
    )
    for rank, node in enumerate(nodes(plan)):
        command = node.container.command
        assert value(command, TENSOR_PARALLEL) == "16"
        assert value(command, {"--nnodes"}) == "2"
        assert value(command, {"--node-rank"}) == str(rank)
    assert plan.services[0].fit.fits
