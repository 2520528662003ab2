"""vLLM ends at start where more requests are allowed than the KV cache has recurrent states for."""

from __future__ import annotations

from clusters import on, planned, with_settings
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.model.caches import RecurrentState
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.plan.types import PlannedService
from known_models import model

# Nemotron-Nano-9B-v2: Mamba-2 in 27 layers, attention in four.
STATE = RecurrentState(
    kind="mamba2",
    channels=128 * 80,
    conv_kernel=4,
    heads=128,
    rows=80,
    columns=128,
    groups=8,
    dtype="float32",
)
INVENTORY = "[head]\nn0 ansible_host=192.0.2.1\n\n[all:vars]\nmodel=x\nengine=vllm\nparsers=none\n"


def hybrid() -> Checkpoint:
    types = ("linear",) * 27 + ("full",) * 4 + ("none",) * 25
    return model("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", layers=56, layer_types=types, recurrent=STATE)


def plan(cluster: Cluster, *arguments: str, gpu: str = "A10") -> PlannedService:
    changed = with_settings(cluster, engine_args=list(arguments))
    return planned(on(changed, f"1 x {gpu}"), hybrid()).services[0]


def test_the_number_of_requests_is_lowered(cluster: Cluster) -> None:
    service = plan(cluster, "--max-model-len", "8192")
    (argument,) = service.chosen_arguments
    assert argument.flag == "--max-num-seqs"
    assert 0 < int(argument.value) < 256
    assert "keeps a state of constant size" in argument.reason
    command = service.replicas[0].nodes[0].container.command
    assert command[command.index("--max-num-seqs") + 1] == argument.value
    assert service.fit.fits


def test_a_number_that_is_set_is_checked(cluster: Cluster) -> None:
    service = plan(cluster, "--max-model-len", "8192", "--max-num-seqs", "1000")
    assert service.chosen_arguments == []
    assert service.fit.fits is False
    assert "set --max-num-seqs to" in service.fit.reason
    assert plan(cluster, "--max-model-len", "8192", "--max-num-seqs", "8").fit.fits


def test_nothing_is_lowered_where_the_cache_is_large(cluster: Cluster) -> None:
    assert plan(cluster, "--max-model-len", "8192", gpu="B300").chosen_arguments == []
