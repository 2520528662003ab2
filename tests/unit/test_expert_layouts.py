"""Plans that experts read: layouts, memory by layer type, and advice. Each case has its source."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest
from headfirst.common.errors import InputError
from headfirst.decide.plan.types import PlannedService
from test_expert_plans import Case, holds, plan

R1, V4 = "deepseek-ai/DeepSeek-R1", "deepseek-ai/DeepSeek-V4-Pro"
QWEN3_235B = "Qwen/Qwen3-235B-A22B-FP8"
_8 = "gpus=8 gpu={}"
_SRT = "NVIDIA/srt-slurm, recipes/h200/1k1k and h100"
_VLLM = "vllm-project/recipes, DeepSeek-R1.yaml and MiniMax-M2.yaml"
_MAMBA = "vllm 0.33.0, config/compilation.py: max_num_seqs exceeds the Mamba blocks"
_QWEN = "vllm-project/recipes, Qwen3.6-27B.yaml"
_DP = "SGLang's documentation, DP, DPA and SGLang DP Router"
_KV = "tests/unit/data/sglang-0.5.23-kv.json, by SGLang's own functions"
_WEIGHTS = "tests/unit/data/sglang-0.5.23-weights.json, by SGLang's own model classes"

_DP_8 = "sgl-project/sgl-cookbook, data/models: glm51.yaml, glm46.yaml, high-throughput-dp"
_MULTI = (
    "vllm-project/recipes, strategies/multi_node_dep.yaml: tensor parallel in a node, data parallel across"
)
_DEP_4 = "NVIDIA/srt-slurm, recipes/qwen3.5/fp8/agg: dep4"
_ROCE_THROUGHPUT = "preset=throughput\nnic=eth0\nhca=mlx5_0"


class Expected(NamedTuple):
    """What a plan must have. `sizes`: TP, PP, DP and ranks that keep a KV cache of their own.

    `kv_bytes` are those of a token, `weights` GiB on a rank, within 5 %. `reason` is a part of the layout's
    reason, `advice` of the alternatives and notes, `rejected` of the layouts that are not chosen, `left_out`
    of the arguments.
    """

    sizes: tuple[int, int, int] | None = None
    words: str = ""
    absent: str = ""
    kv_bytes: int | None = None
    tokens: int | None = None
    weights: float | None = None
    fits: bool = True
    reason: str = ""
    advice: str = ""
    rejected: str = ""
    left_out: str = ""
    precision: str = ""


def case(model: str, variables: str, source: str, *hosts: str, **changes: object) -> Case:
    return Case(model, f"{variables}\ntrust_remote_code=true", source, hosts=hosts, changes=changes)


CASES: dict[str, tuple[Case, Expected]] = {
    "L1: as many requests as vLLM has blocks for": (
        case("nvidia/NVIDIA-Nemotron-Nano-9B-v2", "engine=vllm", _MAMBA, "gpus=1 gpu=A10"),
        Expected((1, 1, 1), "--max-num-seqs"),
    ),
    "L1: Nemotron-3": (
        case("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "engine=vllm", _MAMBA, "gpus=1 gpu=H100-80G"),
        Expected((1, 1, 1), "--max-num-seqs"),
    ),
    "L1: a context that does not fit beside the states": (
        case("Qwen/Qwen3.6-27B-FP8", "engine=vllm", _MAMBA, "gpus=1 gpu=L40S"),
        Expected(fits=False, advice="--gpu-memory-utilization 0.95 --max-model-len"),
    ),
    "L3: SGLang leaves less to models that read images": (
        case("Qwen/Qwen3-VL-32B-Instruct", "", _KV, "gpus=1 gpu=H100-80G"),
        Expected(fits=False, advice="--mem-fraction-static 0.92"),
    ),
    "L4: eight GPUs share the experts": (
        case(QWEN3_235B, "", "SGLang's cookbook, Qwen3", _8.format("H100-80G")),
        Expected((8, 1, 1), "--ep-size 8", reason="gives 192, not divisible by the FP8 block"),
    ),
    "L4: with the size that is set": (
        case(QWEN3_235B, "tensor_parallel=8", "SGLang's cookbook, Qwen3", _8.format("H100-80G")),
        Expected((8, 1, 1), "--ep-size 8"),
    ),
    "L4: Coder-480B": (
        case("Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8", "engine=vllm", _VLLM, _8.format("H200-141G")),
        Expected((8, 1, 1), "--enable-expert-parallel"),
    ),
    "L4: MiniMax-M2": (
        case("MiniMaxAI/MiniMax-M2", "engine=vllm", _VLLM, _8.format("H100-80G")),
        Expected((8, 1, 1), "--enable-expert-parallel"),
    ),
    "L5: DeepSeek-R1 for many requests": (
        case(R1, "preset=throughput", _SRT, _8.format("H200-141G")),
        Expected(
            (8, 1, 1),
            "--attn-dp-size 8 --ep-size 8 --chunked-prefill-size 65536 --cuda-graph-max-bs-decode 64",
            absent="--schedule-conservativeness",
            weights=89.35,
        ),
    ),
    "L5: on two nodes": (
        case(R1, "preset=throughput\nnic=eth0\nhca=mlx5_0", _SRT, *(_8.format("H100-80G"),) * 2),
        Expected((16, 1, 1), "--attn-dp-size 16 --ep-size 16 --chunked-prefill-size 131072"),
    ),
    "L6: layers of a gated delta net keep no tokens": (
        case("Qwen/Qwen3.5-397B-A17B", "", _KV, _8.format("H200-141G")),
        Expected((8, 1, 1), kv_bytes=15360),
    ),
    "L6: Nemotron-3": (
        case("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "", _KV, _8.format("H200-141G")),
        Expected((8, 1, 1), kv_bytes=3072),
    ),
    "L10: Qwen3.6": (
        case("Qwen/Qwen3.6-27B", "engine=vllm\nparsers=auto", _QWEN, _8.format("H100-80G")),
        Expected((8, 1, 1), "--reasoning-parser qwen3 --enable-auto-tool-choice"),
    ),
    "L10: gemma-4": (
        case("google/gemma-4-31B-it", "parsers=auto", "SGLang's cookbook, Gemma 4", _8.format("H100-80G")),
        Expected((8, 1, 1), "--reasoning-parser gemma4 --tool-call-parser gemma4"),
    ),
    "L10: a cache that A100 has not": (
        case("Qwen/Qwen3-32B", "engine=vllm\npreset=long-context", _VLLM, _8.format("A100-80G")),
        Expected((8, 1, 1), left_out="--kv-cache-dtype fp8 is left out: it needs compute capability 8.9"),
    ),
    "L13: the checkpoint's FP8 cache": (
        case("nvidia/DeepSeek-V3.1-NVFP4", "", _KV, "gpus=4 gpu=B200"),
        Expected((4, 1, 1), kv_bytes=35136),
    ),
    "L13: the index of DeepSeek-V3.2": (
        case("deepseek-ai/DeepSeek-V3.2", "", _KV, _8.format("H200-141G")),
        Expected((8, 1, 1), kv_bytes=78324),
    ),
    "L17: several copies": (
        case("Qwen/Qwen3-32B", "", "issue: a replica hint", _8.format("H100-80G")),
        Expected((8, 1, 1), rejected="replicas=4 with gpus_per_replica=2"),
    ),
    "L17: copies on one GPU each would hold one request": (
        case("Qwen/Qwen3-32B", "engine=vllm", "our own plan of each", _8.format("H100-80G")),
        Expected((8, 1, 1), rejected="replicas=4 with gpus_per_replica=2"),
    ),
    "one search: a small model for many requests": (
        case("Qwen/Qwen3-8B", "preset=throughput", _DP, _8.format("H100-80G")),
        Expected((1, 1, 8), "--dp-size 8"),
    ),
    "one search: copies that leave no room are not chosen": (
        case("Qwen/Qwen3-32B", "preset=throughput", _DP, _8.format("H100-80G")),
        Expected((2, 1, 4), "--dp-size 4", rejected="TP 1 × PP 1 × DP 8 is not chosen"),
    ),
    "one search: copies that halve the KV cache are not chosen": (
        case("Qwen/Qwen2.5-72B-Instruct-AWQ", "preset=throughput", _DP, "gpus=4 gpu=H100-80G"),
        Expected((2, 1, 2), rejected="TP 1 × PP 1 × DP 4 is not chosen: all its KV caches hold"),
    ),
    "one search: vLLM": (
        case(
            "Qwen/Qwen2.5-VL-7B-Instruct",
            "engine=vllm\npreset=throughput",
            "vllm-project/recipes, Qwen2.5-VL.md: DP=4",
            "gpus=4 gpu=A100-80G",
        ),
        Expected((1, 1, 4), "--data-parallel-size 4"),
    ),
    "one search: 28 heads on eight GPUs": (
        case("Qwen/Qwen2.5-7B-Instruct", "", _DP, _8.format("H100-80G")),
        Expected((4, 1, 2), "--dp-size 2", reason="28 attention heads are not divisible by 8"),
    ),
    "one search: a size that is set leaves GPUs idle": (
        case("Qwen/Qwen3-8B", "tensor_parallel=2", "the inventory's size", _8.format("H100-80G")),
        Expected((2, 1, 1), reason="The inventory sets tensor_parallel=2. 6 of 8 GPUs serve nothing."),
    ),
    "one search: replicas over nodes are the inventory's": (
        case("Qwen/Qwen3-32B", "preset=throughput\nnic=eth0\nhca=mlx5_0", _DP, *(_8.format("H100-80G"),) * 2),
        Expected((16, 1, 1), rejected="replicas=8 with gpus_per_replica=2"),
    ),
    "one search: vLLM starts with what the preset chooses": (
        case(
            "ByteDance-Seed/Seed-OSS-36B-Instruct",
            "engine=vllm\npreset=throughput",
            _DP,
            _8.format("H100-80G"),
        ),
        Expected((4, 1, 2), rejected="vLLM ends at start where a request can be at most 280,080 tokens"),
    ),
    "one search: vLLM, a latent cache": (
        case("zai-org/GLM-5.2", "engine=vllm\npreset=throughput", _VLLM, _8.format("B300")),
        Expected(
            (2, 1, 4), "--data-parallel-size 4 --enable-expert-parallel", rejected="at most 817,328 tokens"
        ),
    ),
    "one search: fewer groups where a copy for each rank is too large": (
        case("zai-org/GLM-5.1", _ROCE_THROUGHPUT, _DP_8, *(_8.format("H200-141G"),) * 2),
        Expected(
            (16, 1, 1), "--attn-dp-size 8 --ep-size 16", rejected="in 16 groups is not chosen: the weights"
        ),
    ),
    "one search: why no groups where the ranks divide the cache": (
        case("zai-org/GLM-4.6-FP8", "preset=throughput", _DP_8, _8.format("H200-141G")),
        Expected((8, 1, 1), "--ep-size 8", rejected="8 ranks divide 8 KV heads, so that none keeps a copy"),
    ),
    "one search: groups before pipeline stages": (
        case("baidu/ERNIE-4.5-21B-A3B-PT", "engine=vllm\npreset=throughput", _DP, _8.format("H100-80G")),
        Expected((1, 1, 8), "--enable-expert-parallel"),
    ),
    "one search: a group for each rank": (
        case("Qwen/Qwen3.5-397B-A17B-FP8", "preset=throughput", _DEP_4, "gpus=4 gpu=GB200"),
        Expected((4, 1, 1), "--attn-dp-size 4 --ep-size 4 --chunked-prefill-size 32768"),
    ),
    "a preset makes no uncertain plan impossible": (
        case(
            "nvidia/Qwen3.6-27B-NVFP4",
            "engine=vllm\npreset=latency",
            "our plan without a preset",
            "gpus=1 gpu=RTX5090",
        ),
        Expected((1, 1, 1), absent="--speculative-config"),
    ),
    "a preset makes no plan uncertain": (
        case("zai-org/GLM-5-FP8", "engine=vllm\npreset=throughput", _VLLM, _8.format("H200-141G")),
        Expected((1, 1, 8), "--enable-expert-parallel", absent="--max-num-batched-tokens 16384"),
    ),
    "vLLM divides no 12 heads of a tower by 8": (
        case(
            "zai-org/GLM-4.6V",
            "engine=vllm",
            "vllm 0.33.0, models/glm4_1v.py, Glm4vVisionAttention",
            _8.format("H100-80G"),
        ),
        Expected((8, 1, 1), "--mm-encoder-tp-mode data"),
    ),
    "vLLM divides no 12 heads of GLM-4.1V's tower by 8": (
        case(
            "zai-org/GLM-4.1V-9B-Thinking",
            "engine=vllm\ntensor_parallel=8",
            "vllm 0.33.0, models/glm4_1v.py, Glm4vVisionAttention",
            _8.format("H100-80G"),
        ),
        Expected((8, 1, 1), "--mm-encoder-tp-mode data"),
    ),
    "SGLang: GLM's tower on each rank": (
        case("zai-org/GLM-4.6V-FP8", "", "SGLang's cookbook, GLM-4.6V", _8.format("H100-80G")),
        Expected((8, 1, 1), "--mm-enable-dp-encoder"),
    ),
    "DP attention: a head for each group": (
        case("Qwen/Qwen3.5-397B-A17B-FP8", "preset=throughput", _DEP_4, "gpus=4 gpu=GB200"),
        # 1.9 GiB of head on each rank instead of a quarter.
        Expected((4, 1, 1), "--enable-dp-lm-head", weights=100.7),
    ),
    "one search: why no groups where they are refused": (
        case(R1, _ROCE_THROUGHPUT, "sglang 0.5.23, layers/linear.py", *(_8.format("H100-80G"),) * 4),
        Expected(
            rejected="DP attention and expert parallelism is not chosen: the intermediate size of 18432"
        ),
    ),
    "one search: a preset takes no context away": (
        case(
            "meta-llama/Llama-4-Scout-17B-16E-Instruct",
            f"engine=vllm\n{_ROCE_THROUGHPUT}",
            "vllm-project/recipes, Llama-4-Scout-17B-16E-Instruct.yaml: multi_node_tp_pp",
            *(_8.format("H100-80G"),) * 2,
        ),
        Expected((8, 2, 1), rejected="vLLM ends at start where a request can be at most"),
    ),
    "one search: a padded width": (
        case(
            "Qwen/Qwen2.5-VL-72B-Instruct-AWQ",
            "engine=vllm",
            "QwenLM/Qwen3-VL issue 1353",
            _8.format("H100-80G"),
        ),
        Expected((8, 1, 1)),
    ),
    "one search: groups on nodes where all ranks cannot share": (
        case(
            "Qwen/Qwen3.5-397B-A17B-FP8",
            "engine=vllm\nnic=eth0\nhca=mlx5_0",
            _MULTI,
            *(_8.format("H200-141G"),) * 2,
        ),
        Expected(
            (8, 1, 2),
            "--data-parallel-size 2 --enable-expert-parallel",
            reason="the shared expert size of 1024 in 16 parts gives 64",
        ),
    ),
    "one search: groups in a node where all ranks cannot share": (
        case("baidu/ERNIE-4.5-21B-A3B-PT", "engine=vllm", _MULTI, _8.format("H100-80G")),
        Expected((4, 1, 2), "--data-parallel-size 2 --enable-expert-parallel"),
    ),
    "one search: more stages are no remedy for a long context": (
        case(R1, "engine=vllm", _VLLM, "gpus=4 gpu=GB200"),
        Expected((4, 1, 1), fits=False, advice='engine_args="--gpu-memory-utilization 0.95" fits'),
    ),
    "one search: experts in each command of a recipe": (
        case(R1, "engine=vllm", _VLLM, _8.format("H200-141G")),
        Expected((8, 1, 1), "--enable-expert-parallel", reason="as in each command of this model's recipe"),
    ),
    "L17: more memory for a small cache": (
        case("Qwen/Qwen3-8B", "", "SGLang's documentation, hyperparameter tuning", "gpus=1 gpu=RTX4090"),
        Expected((1, 1, 1), advice='engine_args="--mem-fraction-static 0.88" fits'),
    ),
    "L19: FP8 while it loads is in the fit": (
        case(
            "meta-llama/Llama-3.3-70B-Instruct",
            'engine=vllm\nengine_args="--quantization fp8"\ngpu_memory=80GiB',
            "vllm 0.33.0, layers/quantization/fp8.py",
            "gpus=2 gpu=H100-80G",
        ),
        Expected((2, 1, 1), weights=33.8),
    ),
    "L21: DeepSeek-V4 compresses its cache": (
        case(V4, "", _KV, _8.format("B200")),
        Expected((8, 1, 1), kv_bytes=10115),
    ),
    "L21: vLLM": (
        case(V4, "engine=vllm", "vllm 0.33.0, models/deepseek_v4, run without a GPU", _8.format("B200")),
        Expected((8, 1, 1), kv_bytes=1_435_968 // 256),
    ),
    "L22: Kimi-K3 has a cache in 24 of 93 layers": (
        case("moonshotai/Kimi-K3", "nic=eth0\nhca=mlx5_0", _KV, *(_8.format("B200"),) * 2),
        Expected((16, 1, 1), kv_bytes=27648),
    ),
    "L23: the index of MiniMax-M3": (
        case("nvidia/MiniMax-M3-NVFP4", "", _KV, _8.format("B200")),
        Expected((8, 1, 1), kv_bytes=45312),
    ),
    "L24: a smaller reserve": (
        case(R1, "", "our own plan with these arguments", "gpus=4 gpu=B200"),
        Expected(fits=False, advice="--chunked-prefill-size 4096 --max-running-requests 32"),
    ),
    "L24: more GPUs": (
        case(R1, "", "our own plan with these GPUs", "gpus=4 gpu=B200"),
        Expected(fits=False, advice="8 × B200-180G in the node hold it"),
    ),
    "L25: vLLM copies the latent cache to no rank": (
        case(R1, "engine=vllm\npreset=throughput", _VLLM, _8.format("H200-141G")),
        Expected((1, 1, 8), "--data-parallel-size 8 --enable-expert-parallel"),
    ),
    "L26: one KV head leads to DP attention": (
        case(V4, "preset=throughput", "sglang 0.5.23, models/deepseek_v4.py", _8.format("B200")),
        Expected((8, 1, 1), "--attn-dp-size 8 --ep-size 8"),
    ),
    "L27: the top level of config.json names the scheme": (
        case("nvidia/Kimi-K2.5-NVFP4", "engine=vllm", "its config.json; vLLM's own order", _8.format("B200")),
        Expected((8, 1, 1), weights=70.6, precision="NVFP4"),
    ),
    "L32: MXFP8 is one byte": (
        case("MiniMaxAI/MiniMax-M3-MXFP8", "engine=vllm", "its tensors", _8.format("B200")),
        Expected((8, 1, 1), weights=51.7, precision="MXFP8"),
    ),
    "L28: attention of GLM-5 is copied": (
        case("zai-org/GLM-5-FP8", "preset=throughput", _WEIGHTS, _8.format("B200")),
        Expected((8, 1, 1), "--attn-dp-size 8", weights=99.71),
    ),
    "L30: Qwen3-Next has a draft layer and no key for it": (
        case(
            "Qwen/Qwen3-Next-80B-A3B-Instruct",
            "engine=vllm\npreset=latency",
            "vllm-project/recipes, Qwen3-Next-80B-A3B-Instruct.yaml",
            _8.format("H200-141G"),
        ),
        Expected((8, 1, 1), "--speculative-config"),
    ),
    "L30: DeepSeek-V3.2-Exp": (
        case(
            "deepseek-ai/DeepSeek-V3.2-Exp",
            "engine=vllm\nparsers=auto",
            "vllm-project/recipes, DeepSeek-V3.2-Exp.yaml",
            _8.format("H200-141G"),
        ),
        Expected((8, 1, 1), "--tokenizer-mode deepseek_v32 --enable-auto-tool-choice"),
    ),
    "L30: each rank has the vision encoder": (
        case(
            "Qwen/Qwen2.5-VL-72B-Instruct",
            "engine=vllm\npreset=throughput",
            "vllm-project/recipes, Qwen2.5-VL-72B-Instruct.yaml",
            "gpus=4 gpu=A100-80G",
        ),
        Expected((4, 1, 1), "--mm-encoder-tp-mode data", weights=35.3),
    ),
    "L31: why TP 16 over two nodes": (
        case(R1, "nic=eth0\nhca=mlx5_0", "issue: reasons of a layout", *(_8.format("H100-80G"),) * 2),
        Expected((16, 1, 1), reason="All ranks share each layer"),
    ),
    "L31: why stages": (
        case(R1, "nic=eth0\nhca=none", "issue: reasons of a layout", *(_8.format("H100-80G"),) * 2),
        Expected((8, 2, 1), reason="No RDMA connects the nodes"),
    ),
}


def check(service: PlannedService, expected: Expected) -> None:
    command = service.replicas[0].nodes[0].container.command
    fit = service.fit
    assert fit.fits is expected.fits, fit.reason
    if expected.sizes:
        assert (
            service.tensor_parallel,
            service.pipeline_parallel,
            service.data_parallel,
        ) == expected.sizes
    assert not expected.words or holds(expected.words, command), command
    assert not expected.absent or not holds(expected.absent, command), command
    if expected.kv_bytes:
        assert fit.kv_bytes_per_token == pytest.approx(expected.kv_bytes, rel=0.05)
    if expected.weights:
        assert fit.weight_bytes_per_rank / 2**30 == pytest.approx(expected.weights, rel=0.05)
    assert expected.reason in service.layout_reason
    assert expected.advice in " ".join([*service.alternatives, *service.notes])
    assert expected.rejected in " ".join(service.layouts_rejected)
    assert expected.left_out in " ".join(service.arguments_left_out)
    assert expected.precision in service.precision


@pytest.mark.parametrize("name", CASES)
def test_the_plan_is_what_an_expert_expects(name: str, tmp_path: Path) -> None:
    its, expected = CASES[name]
    check(plan(its, tmp_path).services[0], expected)


@pytest.mark.parametrize(
    ("engine", "reason"),
    [
        ("sglang", "it has weights in fp8 and mxfp4"),
        ("vllm", "sparse attention from compute capability 9.0 on"),
    ],
)
def test_a_mixture_is_not_converted(tmp_path: Path, engine: str, reason: str) -> None:
    """L29: on A100 it failed after a download of two hours; its attention has kernels from Hopper on."""
    with pytest.raises(InputError, match=reason):
        plan(case(V4, f"engine={engine}", "sglang issue 35420", *(_8.format("A100-80G"),) * 2), tmp_path)


def test_the_sum_over_ranks_is_stated(tmp_path: Path) -> None:
    """L31: with DP attention each rank keeps requests of its own."""
    service = plan(CASES["L5: DeepSeek-R1 for many requests"][0], tmp_path).services[0]
    assert service.fit.kv_tokens_of_replica == 8 * (service.fit.kv_tokens or 0)
    assert "in each of 8 groups with separate requests" in service.fit.reason
    assert service.layout == "TP 8 × PP 1, attention DP 8, EP 8"


def test_an_architecture_without_dp_attention_is_refused(tmp_path: Path) -> None:
    """SGLang 0.5.23, arg_groups/model_overrides/ernie45_vl.py; `preset=throughput` chose it on eight GPUs."""
    ernie = case("baidu/ERNIE-4.5-VL-28B-A3B-PT", "preset=throughput", "ernie45_vl.py", _8.format("H100-80G"))
    with pytest.raises(InputError, match="tensor_parallel can be 1, 2, 4") as refused:
        plan(ernie, tmp_path)
    assert "20 attention heads are not divisible by 8" in str(refused.value)


def test_fused_attention_projections_stay_in_their_parts(tmp_path: Path) -> None:
    """SGLang 0.5.23, models/mimo_v2.py: the eight parts of MiMo-V2.5-Pro go to 1, 2, 4 or 8 ranks."""
    mimo = "XiaomiMiMo/MiMo-V2.5-Pro"
    service = plan(
        case(mimo, "trust_remote_code=true", "mimo_v2.py", *(_8.format("H100-80G"),) * 2), tmp_path
    )
    assert (service.services[0].tensor_parallel, service.services[0].pipeline_parallel) == (8, 2)
    sixteen = case(mimo, "tensor_parallel=16", "mimo_v2.py", *(_8.format("H100-80G"),) * 2)
    with pytest.raises(
        InputError, match="8 parts of the fused attention projections are not divisible by 16"
    ):
        plan(sixteen, tmp_path)
    with pytest.raises(InputError, match="the scales of its fused attention projections are those of their"):
        plan(case(mimo, "", "mimo_v2.py", *(_8.format("A100-80G"),) * 4), tmp_path)


def test_mxfp8_layers_have_kernels_from_hopper_on(tmp_path: Path) -> None:
    """SGLang 0.5.23, fp8_utils.py, _unsupported_mxfp8_linear; the mixture's own lowest GPU is Ampere."""
    m3 = case("nvidia/MiniMax-M3-NVFP4", "", "fp8_utils.py", _8.format("A100-80G"))
    with pytest.raises(InputError, match="its MXFP8 layers need compute capability"):
        plan(m3, tmp_path)
    assert plan(m3._replace(hosts=(_8.format("H100-80G"),)), tmp_path).services[0].fit.fits


def test_the_plan_names_every_scheme_of_a_mixture(tmp_path: Path) -> None:
    """The checkpoint was called FP8, though most of it is NVFP4."""
    mixed = plan(
        case("nvidia/Qwen3.6-27B-NVFP4", "", "hf_quant_config.json", _8.format("H100-80G")), tmp_path
    )
    assert mixed.services[0].precision == "FP8+NVFP4"
    assert "modelopt fp8 and nvfp4" in mixed.services[0].convert_reason


def test_small_states_are_stated_in_mib(tmp_path: Path) -> None:
    """They were printed as 0.0 GiB."""
    its = case("Qwen/Qwen3-Next-80B-A3B-Instruct", "", _KV, _8.format("H100-80G"))
    assert re.search(r"also keeps up to \d+ MiB of states", plan(its, tmp_path).services[0].fit.reason)


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
@pytest.mark.parametrize("preset", ["throughput", "latency"])
@pytest.mark.parametrize("hosts", [1, 2])
def test_shorter_requests_lose_no_layout(tmp_path: Path, engine: str, preset: str, hosts: int) -> None:
    """A limit of the user's below 32,768 tokens is no lack of KV cache."""
    flag = {"sglang": "--context-length", "vllm": "--max-model-len"}[engine]
    sizes = set()
    for length in ("32768", "8192", "1024"):
        variables = f"engine={engine}\npreset={preset}\nengine_args='{flag} {length}'"
        service = plan(case(R1, variables, _VLLM, *[_8.format("H200-141G")] * hosts), tmp_path).services[0]
        sizes.add((service.tensor_parallel, service.data_parallel, service.expert_parallel))
    assert len(sizes) == 1
