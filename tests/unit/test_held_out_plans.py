"""Plans of real deployments that the planner was not written for: published recipes, and what cannot work.

Sources of the sizes: SGLang's cookbook and documentation, and the model cards. Each case is one inventory.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import pytest
from clusters import on, planned, with_settings
from headfirst.common.errors import InputError
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.plan.types import PlannedService
from known_models import model as known

R1 = "deepseek-ai/DeepSeek-R1"
LLAMA_70B = "deepseek-ai/DeepSeek-R1-Distill-Llama-70B"
LLAMA_8B = "deepseek-ai/DeepSeek-R1-Distill-Llama-8B"
LLAMA_405B = "meta-llama/Llama-3.1-405B-Instruct"
QWQ = "Qwen/QwQ-32B"
INVENTORY = "[head]\nn0 ansible_host=192.0.2.1\n\n[all:vars]\nmodel=x\ntrust_remote_code=true\n"


MINIMAX_M2 = known("MiniMaxAI/MiniMax-M2")
QWEN3_235B = known("Qwen/Qwen3-235B-A22B-FP8")
QWEN3_NEXT = known("Qwen/Qwen3-Next-80B-A3B-Instruct")
V4_FLASH = known("deepseek-ai/DeepSeek-V4-Flash")


def plan(cluster: Cluster, checkpoint: Checkpoint, gpus: str, variables: str) -> PlannedService:
    given: dict[str, Any] = dict(one.split("=", 1) for one in variables.split(" | ") if one)
    given |= {name: int(given[name]) for name in given.keys() & {"tensor_parallel", "pipeline_parallel"}}
    given["engine_args"] = shlex.split(given.get("engine_args", ""))
    hosts = on(cluster, gpus, **({"hca": given.pop("hca")} if "hca" in given else {}))
    return planned(with_settings(hosts, model=checkpoint.id, **given), checkpoint).services[0]


def fits(tensor_parallel: int, **others: object) -> Mapping[str, Any]:
    return {"tensor_parallel": tensor_parallel, "fits": True, **others}


# (checkpoint, GPUs, variables, what the plan must have)
RIGHT: list[tuple[Checkpoint, str, str, Mapping[str, Any]]] = [
    (known(R1), "2 x 8 x H20-96G", "", fits(16)),
    (known(R1), "4 x 8 x A100-80G", "", fits(32, convert_to_bf16=True)),
    (known(R1), "8 x H200", "", fits(8, convert_to_bf16=False)),
    (known(R1), "2 x 8 x H100-80G", "", fits(16)),
    (known(R1), "2 x 8 x H100-80G", "hca=none", {"tensor_parallel": 8, "pipeline_parallel": 2}),
    (known(R1), "8 x 8 x A100-40G", "", fits(32, pipeline_parallel=2)),
    (
        known(R1),
        "2 x 8 x H200",
        "engine_args=--enable-dp-attention --dp-size 16",
        # The figure is of a version that divided the embedding among all ranks.
        {"tensor_parallel": 16, "kv_tokens": pytest.approx(562_031, rel=0.05)},
    ),
    (
        known(R1),
        "4 x 8 x H100-80G",
        "engine_args=--moe-a2a-backend deepep --moe-dense-tp-size 1 "
        "--attn-dp-size 32 --cuda-graph-max-bs-decode 64",
        fits(32, pipeline_parallel=1),
    ),
    (known(LLAMA_405B), "2 x 8 x H100-80G", "", fits(16)),
    (known(LLAMA_70B), "8 x A100-80G", "", fits(8)),
    (known(LLAMA_70B), "4 x H100-80G", "", fits(4)),
    (known(LLAMA_70B), "8 x H100-80G", "engine_args=--dp-size 2", {"tensor_parallel": 4}),
    (known(LLAMA_8B), "1 x RTX-4090", "", fits(1)),
    (known(LLAMA_8B), "1 x RTX-3090", "", fits(1)),
    (known(QWQ), "4 x L20", "", fits(4)),
    (known(QWQ), "4 x RTX-4090", "engine_args=--mem-fraction-static 0.88", fits(4)),
    (MINIMAX_M2, "8 x H100-80G", "engine_args=--ep-size 8 | tensor_parallel=8", fits(8)),
    (MINIMAX_M2, "8 x H100-80G", "", {"tensor_parallel": 8, "pipeline_parallel": 1}),
    (MINIMAX_M2, "4 x H100-80G", "", fits(4)),
    (QWEN3_235B, "8 x H100-80G", "engine_args=--ep-size 2 | tensor_parallel=8", fits(8)),
    (QWEN3_235B, "8 x H20-96G", "engine_args=--ep-size 8", {"tensor_parallel": 8}),
    (known(R1, architecture="DeepseekV32ForCausalLM"), "8 x H200", "", {"tensor_parallel": 8}),
    (known(LLAMA_8B, architecture="Qwen3Model"), "1 x L4", "task=embedding", {"task": "embedding"}),
    (known(LLAMA_8B, architecture="Qwen2ForRewardModel"), "1 x RTX-4090", "task=reward", {"task": "reward"}),
    (V4_FLASH, "8 x H200", "engine=lmdeploy | engine_image=openmmlab/lmdeploy:v0.18.0-cu13.0", fits(8)),
]

# (checkpoint, GPUs, variables, words of the refusal)
WRONG: list[tuple[Checkpoint, str, str, str]] = [
    (QWEN3_NEXT, "8 x H100-80G", "engine=lmdeploy", "it reads full_attention_interval"),
    (V4_FLASH, "8 x H200", "engine=lmdeploy", "for CUDA 13 has tile_kernels: write engine_image="),
    (known("deepseek-ai/DeepSeek-V3.2"), "4 x 8 x A100-80G", "", "sparse attention needs"),
    (known(LLAMA_8B), "1 x V100-32G", "", "compute capability 7.5"),
    (known(LLAMA_8B, architecture="JambaForCausalLM"), "1 x H100-80G", "", "has no model class"),
    (known(LLAMA_8B, architecture="Qwen3Model"), "1 x L4", "task=chat", "set task=embedding"),
    (known(LLAMA_8B, dtype="gptq"), "1 x T4", "", "gptq_marlin needs compute capability 8.0"),
    (known(LLAMA_8B), "1 x L4", "engine_args=--quantization awq", "needs a checkpoint"),
    (known(LLAMA_8B), "1 x L4", "engine_args=--context-length 1000000", "more than the model's"),
    (known(LLAMA_8B), "1 x L4", "engine_args=--mem-fraction-static 1.5", "from 0.001 to 0.999"),
    (known(LLAMA_8B), "1 x L4", "served_model_name=a:b", "has a colon"),
    (known(LLAMA_8B), "2 x 1 x L4", "engine_args=--dp-size 2", "within one node only"),
    (known(LLAMA_70B), "8 x H100-80G", "tensor_parallel=8 | engine_args=--dp-size 2", "it needs 16 GPUs"),
    (
        known(R1),
        "2 x 8 x H100-80G",
        "tensor_parallel=16 | engine_args=--attn-dp-size 3",
        "not divisible by --attn-dp-size 3",
    ),
    (
        known(R1),
        "2 x 8 x H100-80G",
        "pipeline_parallel=2 | engine_args=--speculative-algorithm EAGLE",
        "speculative decoding excludes pipeline",
    ),
    (
        QWEN3_235B,
        "8 x H100-80G",
        "pipeline_parallel=2 | engine_args=--ep-size 8",
        "tensor_parallel=4 is not divisible by --ep-size 8",
    ),
    (
        MINIMAX_M2,
        "8 x H100-80G",
        "tensor_parallel=8 | engine_args=--ep-size 1",
        "gives 192, not divisible by the FP8 block",
    ),
    (known(R1), "2 x 8 x H100-80G", "engine_args=--quantization awq", "quantised with fp8, not with awq"),
    (known(R1), "21 x 8 x H100-80G", "", "with replicas=10"),
    (known(R1), "100 x 8 x H100-80G", "", "replicas=50 serves 50 copies"),
]

# (checkpoint, GPUs, variables, words of the reason)
TOO_LARGE: list[tuple[Checkpoint, str, str, str]] = [
    (known(R1), "8 x H100-80G", "", "2 nodes with 8 × H100-80G each hold it"),
    (known(R1), "2 x 8 x A100-80G", "", "3 nodes with 8 × A100-80G each hold it"),
    (known(QWQ), "4 x RTX-4090", "", "--chunked-prefill-size 2048 --max-running-requests 16"),
    (known(LLAMA_70B), "1 x H100-80G", "", "4 × H100-80G in the node hold it"),
]


@pytest.mark.parametrize(("checkpoint", "gpus", "variables", "wanted"), RIGHT)
def test_a_published_deployment_is_planned(
    cluster: Cluster, checkpoint: Checkpoint, gpus: str, variables: str, wanted: Mapping[str, Any]
) -> None:
    made = plan(cluster, checkpoint, gpus, variables)
    found = {**dict(made), "fits": made.fit.fits, "kv_tokens": made.fit.kv_tokens}
    assert {name: found[name] for name in wanted} == wanted


@pytest.mark.parametrize(("checkpoint", "gpus", "variables", "words"), WRONG)
def test_what_cannot_work_is_refused(
    cluster: Cluster, checkpoint: Checkpoint, gpus: str, variables: str, words: str
) -> None:
    with pytest.raises(InputError) as raised:
        plan(cluster, checkpoint, gpus, variables)
    assert words in f"{raised.value.what} {raised.value.hint}"


@pytest.mark.parametrize(("checkpoint", "gpus", "variables", "words"), TOO_LARGE)
def test_what_does_not_fit_comes_with_what_would(
    cluster: Cluster, checkpoint: Checkpoint, gpus: str, variables: str, words: str
) -> None:
    made = plan(cluster, checkpoint, gpus, variables)
    assert made.fit.fits is False
    assert words in " ".join(made.alternatives)
