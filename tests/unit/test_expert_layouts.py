"""Plans that experts read: layouts, memory by layer type, and advice. Each case has its source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from headfirst.common.errors import InputError
from headfirst.decide.plan.types import PlannedService
from test_expert_plans import Case, check, plan, read

R1, V4 = "deepseek-ai/DeepSeek-R1", "deepseek-ai/DeepSeek-V4-Pro"
MIMO, M3 = "XiaomiMiMo/MiMo-V2.5-Pro", "nvidia/MiniMax-M3-NVFP4"
TRUST = "trust_remote_code=true"
TABLE = """
sources:
  - &srt "NVIDIA/srt-slurm, recipes/h200/1k1k and h100"
  - &vllm "vllm-project/recipes, DeepSeek-R1.yaml and MiniMax-M2.yaml"
  - &mamba "vllm 0.33.0, config/compilation.py: max_num_seqs exceeds the Mamba blocks"
  - &dp "SGLang's documentation, DP, DPA and SGLang DP Router"
  - &kv "tests/unit/data/sglang-0.5.23-kv.json, by SGLang's own functions"
  - &dp8 "sgl-project/sgl-cookbook, data/models: glm51.yaml, glm46.yaml, high-throughput-dp"
  - &multi "vllm-project/recipes, strategies/multi_node_dep.yaml: TP in a node, DP across"
  - &dep4 "NVIDIA/srt-slurm, recipes/qwen3.5/fp8/agg: dep4"
  - &cookbook "SGLang's cookbook, Qwen3"
  - &glm "vllm 0.33.0, models/glm4_1v.py, Glm4vVisionAttention"
  - &reasons "issue: reasons of a layout"
"L1: as many requests as vLLM has blocks for":
  plan: {model: nvidia/NVIDIA-Nemotron-Nano-9B-v2, gpus: 1 x A10, set: [engine=vllm], source: *mamba}
  has: {sizes: [1, 1, 1], words: --max-num-seqs}
"L1: Nemotron-3":
  plan: {model: nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16, gpus: 1 x H100-80G, set: [engine=vllm],
    source: *mamba}
  has: {sizes: [1, 1, 1], words: --max-num-seqs}
"L1: a context that does not fit beside the states":
  plan: {model: Qwen/Qwen3.6-27B-FP8, gpus: 1 x L40S, set: [engine=vllm], source: *mamba}
  has: {fits: false, advice: --gpu-memory-utilization 0.95 --max-model-len}
"L3: SGLang leaves less to models that read images":
  plan: {model: Qwen/Qwen3-VL-32B-Instruct, gpus: 1 x H100-80G, source: *kv}
  has: {fits: false, advice: --mem-fraction-static 0.92}
"L4: eight GPUs share the experts":
  plan: {model: Qwen/Qwen3-235B-A22B-FP8, gpus: 8 x H100-80G, source: *cookbook}
  has: {sizes: [8, 1, 1], words: --ep-size 8, reason: "gives 192, not divisible by the FP8 block"}
"L4: with the size that is set":
  plan: {model: Qwen/Qwen3-235B-A22B-FP8, gpus: 8 x H100-80G, set: [tensor_parallel=8], source: *cookbook}
  has: {sizes: [8, 1, 1], words: --ep-size 8}
"L4: Coder-480B":
  plan: {model: Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8, gpus: 8 x H200-141G, set: [engine=vllm],
    source: *vllm}
  has: {sizes: [8, 1, 1], words: --enable-expert-parallel}
"L4: MiniMax-M2":
  plan: {model: MiniMaxAI/MiniMax-M2, gpus: 8 x H100-80G, set: [engine=vllm], source: *vllm}
  has: {sizes: [8, 1, 1], words: --enable-expert-parallel}
"L5: DeepSeek-R1 for many requests":
  plan: {model: deepseek-ai/DeepSeek-R1, gpus: 8 x H200-141G, set: [preset=throughput], source: *srt}
  has: {sizes: [8, 1, 1],
    words: --attn-dp-size 8 --ep-size 8 --chunked-prefill-size 65536 --cuda-graph-max-bs-decode 64,
    absent: --schedule-conservativeness, weights: 89.35}
"L5: on two nodes":
  plan: {model: deepseek-ai/DeepSeek-R1, gpus: 2 x 8 x H100-80G,
    set: [preset=throughput, nic=eth0, hca=mlx5_0], source: *srt}
  has: {sizes: [16, 1, 1], words: --attn-dp-size 16 --ep-size 16 --chunked-prefill-size 131072}
"L6: layers of a gated delta net keep no tokens":
  plan: {model: Qwen/Qwen3.5-397B-A17B, gpus: 8 x H200-141G, source: *kv}
  has: {sizes: [8, 1, 1], kv_bytes: 15360}
"L6: Nemotron-3":
  plan: {model: nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16, gpus: 8 x H200-141G, source: *kv}
  has: {sizes: [8, 1, 1], kv_bytes: 3072}
"L10: Qwen3.6":
  plan: {model: Qwen/Qwen3.6-27B, gpus: 8 x H100-80G, set: [engine=vllm, parsers=auto],
    source: "vllm-project/recipes, Qwen3.6-27B.yaml"}
  has: {sizes: [8, 1, 1], words: --reasoning-parser qwen3 --enable-auto-tool-choice}
"L10: gemma-4":
  plan: {model: google/gemma-4-31B-it, gpus: 8 x H100-80G, set: [parsers=auto],
    source: "SGLang's cookbook, Gemma 4"}
  has: {sizes: [8, 1, 1], words: --reasoning-parser gemma4 --tool-call-parser gemma4}
"L10: a cache that A100 has not":
  plan: {model: Qwen/Qwen3-32B, gpus: 8 x A100-80G, set: [engine=vllm, preset=long-context], source: *vllm}
  has: {sizes: [8, 1, 1], left_out: "--kv-cache-dtype fp8 is left out: it needs compute capability 8.9"}
"L13: the checkpoint's FP8 cache":
  plan: {model: nvidia/DeepSeek-V3.1-NVFP4, gpus: 4 x B200, source: *kv}
  has: {sizes: [4, 1, 1], kv_bytes: 35136}
"L13: the index of DeepSeek-V3.2":
  plan: {model: deepseek-ai/DeepSeek-V3.2, gpus: 8 x H200-141G, source: *kv}
  has: {sizes: [8, 1, 1], kv_bytes: 78324}
"L17: several copies":
  plan: {model: Qwen/Qwen3-32B, gpus: 8 x H100-80G, source: "issue: a replica hint"}
  has: {sizes: [8, 1, 1], rejected: replicas=4 with gpus_per_replica=2}
"L17: copies on one GPU each would hold one request":
  plan: {model: Qwen/Qwen3-32B, gpus: 8 x H100-80G, set: [engine=vllm], source: our own plan of each}
  has: {sizes: [8, 1, 1], rejected: replicas=4 with gpus_per_replica=2}
"one search: a small model for many requests":
  plan: {model: Qwen/Qwen3-8B, gpus: 8 x H100-80G, set: [preset=throughput], source: *dp}
  has: {sizes: [1, 1, 8], words: --dp-size 8}
"one search: copies that leave no room are not chosen":
  plan: {model: Qwen/Qwen3-32B, gpus: 8 x H100-80G, set: [preset=throughput], source: *dp}
  has: {sizes: [2, 1, 4], words: --dp-size 4, rejected: TP 1 × PP 1 × DP 8 is not chosen}
"one search: copies that halve the KV cache are not chosen":
  plan: {model: Qwen/Qwen2.5-72B-Instruct-AWQ, gpus: 4 x H100-80G, set: [preset=throughput], source: *dp}
  has: {sizes: [2, 1, 2], rejected: "TP 1 × PP 1 × DP 4 is not chosen: all its KV caches hold"}
"one search: vLLM":
  plan: {model: Qwen/Qwen2.5-VL-7B-Instruct, gpus: 4 x A100-80G, set: [engine=vllm, preset=throughput],
    source: "vllm-project/recipes, Qwen2.5-VL.md: DP=4"}
  has: {sizes: [1, 1, 4], words: --data-parallel-size 4}
"one search: 28 heads on eight GPUs":
  plan: {model: Qwen/Qwen2.5-7B-Instruct, gpus: 8 x H100-80G, source: *dp}
  has: {sizes: [4, 1, 2], words: --dp-size 2, reason: 28 attention heads are not divisible by 8}
"one search: a size that is set leaves GPUs idle":
  plan: {model: Qwen/Qwen3-8B, gpus: 8 x H100-80G, set: [tensor_parallel=2], source: the inventory's size}
  has: {sizes: [2, 1, 1], reason: The inventory sets tensor_parallel=2. 6 of 8 GPUs serve nothing.}
"one search: replicas over nodes are the inventory's":
  plan: {model: Qwen/Qwen3-32B, gpus: 2 x 8 x H100-80G, set: [preset=throughput, nic=eth0, hca=mlx5_0],
    source: *dp}
  has: {sizes: [16, 1, 1], rejected: replicas=8 with gpus_per_replica=2}
"one search: vLLM starts with what the preset chooses":
  plan: {model: ByteDance-Seed/Seed-OSS-36B-Instruct, gpus: 8 x H100-80G,
    set: [engine=vllm, preset=throughput], source: *dp}
  has: {sizes: [4, 1, 2], rejected: "vLLM ends at start where a request can be at most 280,080 tokens"}
"one search: vLLM, a latent cache":
  plan: {model: zai-org/GLM-5.2, gpus: 8 x B300, set: [engine=vllm, preset=throughput], source: *vllm}
  has: {sizes: [2, 1, 4], words: --data-parallel-size 4 --enable-expert-parallel,
    rejected: "at most 817,328 tokens"}
"one search: fewer groups where a copy for each rank is too large":
  plan: {model: zai-org/GLM-5.1, gpus: 2 x 8 x H200-141G, set: [preset=throughput, nic=eth0, hca=mlx5_0],
    source: *dp8}
  has: {sizes: [16, 1, 1], words: --attn-dp-size 8 --ep-size 16,
    rejected: "in 16 groups is not chosen: the weights"}
"one search: why no groups where the ranks divide the cache":
  plan: {model: zai-org/GLM-4.6-FP8, gpus: 8 x H200-141G, set: [preset=throughput], source: *dp8}
  has: {sizes: [8, 1, 1], words: --ep-size 8,
    rejected: "8 ranks divide 8 KV heads, so that none keeps a copy"}
"one search: groups before pipeline stages":
  plan: {model: baidu/ERNIE-4.5-21B-A3B-PT, gpus: 8 x H100-80G, set: [engine=vllm, preset=throughput],
    source: *dp}
  has: {sizes: [1, 1, 8], words: --enable-expert-parallel}
"one search: a group for each rank":
  plan: {model: Qwen/Qwen3.5-397B-A17B-FP8, gpus: 4 x GB200, set: [preset=throughput], source: *dep4}
  has: {sizes: [4, 1, 1], words: --attn-dp-size 4 --ep-size 4 --chunked-prefill-size 32768}
a preset makes no uncertain plan impossible:
  plan: {model: nvidia/Qwen3.6-27B-NVFP4, gpus: 1 x RTX5090, set: [engine=vllm, preset=latency],
    source: our plan without a preset}
  has: {sizes: [1, 1, 1], absent: --speculative-config}
a preset makes no plan uncertain:
  plan: {model: zai-org/GLM-5-FP8, gpus: 8 x H200-141G, set: [engine=vllm, preset=throughput], source: *vllm}
  has: {sizes: [1, 1, 8], words: --enable-expert-parallel, absent: --max-num-batched-tokens 16384}
vLLM divides no 12 heads of a tower by 8:
  plan: {model: zai-org/GLM-4.6V, gpus: 8 x H100-80G, set: [engine=vllm], source: *glm}
  has: {sizes: [8, 1, 1], words: --mm-encoder-tp-mode data}
vLLM divides no 12 heads of GLM-4.1V's tower by 8:
  plan: {model: zai-org/GLM-4.1V-9B-Thinking, gpus: 8 x H100-80G, set: [engine=vllm, tensor_parallel=8],
    source: *glm}
  has: {sizes: [8, 1, 1], words: --mm-encoder-tp-mode data}
"SGLang: GLM's tower on each rank":
  plan: {model: zai-org/GLM-4.6V-FP8, gpus: 8 x H100-80G, source: "SGLang's cookbook, GLM-4.6V"}
  has: {sizes: [8, 1, 1], words: --mm-enable-dp-encoder}
"DP attention: a head for each group":
  plan: {model: Qwen/Qwen3.5-397B-A17B-FP8, gpus: 4 x GB200, set: [preset=throughput], source: *dep4}
  # 1.9 GiB of head on each rank instead of a quarter.
  has: {sizes: [4, 1, 1], words: --enable-dp-lm-head, weights: 100.7}
"one search: why no groups where they are refused":
  plan: {model: deepseek-ai/DeepSeek-R1, gpus: 4 x 8 x H100-80G,
    set: [preset=throughput, nic=eth0, hca=mlx5_0], source: "sglang 0.5.23, layers/linear.py"}
  has: {rejected: "DP attention and expert parallelism is not chosen: the intermediate size of 18432"}
"one search: a preset takes no context away":
  plan: {model: meta-llama/Llama-4-Scout-17B-16E-Instruct, gpus: 2 x 8 x H100-80G,
    set: [engine=vllm, preset=throughput, nic=eth0, hca=mlx5_0],
    source: "vllm-project/recipes, Llama-4-Scout-17B-16E-Instruct.yaml: multi_node_tp_pp"}
  has: {sizes: [8, 2, 1], rejected: vLLM ends at start where a request can be at most}
"one search: a padded width":
  plan: {model: Qwen/Qwen2.5-VL-72B-Instruct-AWQ, gpus: 8 x H100-80G, set: [engine=vllm],
    source: QwenLM/Qwen3-VL issue 1353}
  has: {sizes: [8, 1, 1]}
"one search: groups on nodes where all ranks cannot share":
  plan: {model: Qwen/Qwen3.5-397B-A17B-FP8, gpus: 2 x 8 x H200-141G, set: [engine=vllm, nic=eth0, hca=mlx5_0],
    source: *multi}
  has: {sizes: [8, 1, 2], words: --data-parallel-size 2 --enable-expert-parallel,
    reason: the shared expert size of 1024 in 16 parts gives 64}
"one search: groups in a node where all ranks cannot share":
  plan: {model: baidu/ERNIE-4.5-21B-A3B-PT, gpus: 8 x H100-80G, set: [engine=vllm], source: *multi}
  has: {sizes: [4, 1, 2], words: --data-parallel-size 2 --enable-expert-parallel}
"one search: more stages are no remedy for a long context":
  plan: {model: deepseek-ai/DeepSeek-R1, gpus: 4 x GB200, set: [engine=vllm], source: *vllm}
  has: {sizes: [4, 1, 1], fits: false, advice: engine_args="--gpu-memory-utilization 0.95" fits}
"one search: experts in each command of a recipe":
  plan: {model: deepseek-ai/DeepSeek-R1, gpus: 8 x H200-141G, set: [engine=vllm], source: *vllm}
  has: {sizes: [8, 1, 1], words: --enable-expert-parallel, reason: as in each command of this model's recipe}
"L17: more memory for a small cache":
  plan: {model: Qwen/Qwen3-8B, gpus: 1 x RTX4090, source: "SGLang's documentation, hyperparameter tuning"}
  has: {sizes: [1, 1, 1], advice: engine_args="--mem-fraction-static 0.88" fits}
"L19: FP8 while it loads is in the fit":
  plan: {model: meta-llama/Llama-3.3-70B-Instruct, gpus: 2 x H100-80G,
    set: [engine=vllm, engine_args="--quantization fp8", gpu_memory=80GiB],
    source: "vllm 0.33.0, layers/quantization/fp8.py"}
  has: {sizes: [2, 1, 1], weights: 33.8}
"L21: DeepSeek-V4 compresses its cache":
  plan: {model: deepseek-ai/DeepSeek-V4-Pro, gpus: 8 x B200, source: *kv}
  has: {sizes: [8, 1, 1], kv_bytes: 10115}
"L21: vLLM":
  plan: {model: deepseek-ai/DeepSeek-V4-Pro, gpus: 8 x B200, set: [engine=vllm],
    source: "vllm 0.33.0, models/deepseek_v4, run without a GPU"}
  has: {sizes: [8, 1, 1], kv_bytes: 5609}
"L22: Kimi-K3 has a cache in 24 of 93 layers":
  plan: {model: moonshotai/Kimi-K3, gpus: 2 x 8 x B200, set: [nic=eth0, hca=mlx5_0], source: *kv}
  has: {sizes: [16, 1, 1], kv_bytes: 27648}
"L23: the index of MiniMax-M3":
  plan: {model: nvidia/MiniMax-M3-NVFP4, gpus: 8 x B200, source: *kv}
  has: {sizes: [8, 1, 1], kv_bytes: 45312}
"L24: a smaller reserve":
  plan: {model: deepseek-ai/DeepSeek-R1, gpus: 4 x B200, source: our own plan with these arguments}
  has: {fits: false, advice: --chunked-prefill-size 4096 --max-running-requests 32}
"L24: more GPUs":
  plan: {model: deepseek-ai/DeepSeek-R1, gpus: 4 x B200, source: our own plan with these GPUs}
  has: {fits: false, advice: 8 × B200-180G in the node hold it}
"L25: vLLM copies the latent cache to no rank":
  plan: {model: deepseek-ai/DeepSeek-R1, gpus: 8 x H200-141G, set: [engine=vllm, preset=throughput],
    source: *vllm}
  has: {sizes: [1, 1, 8], words: --data-parallel-size 8 --enable-expert-parallel}
"L26: one KV head leads to DP attention":
  plan: {model: deepseek-ai/DeepSeek-V4-Pro, gpus: 8 x B200, set: [preset=throughput],
    source: "sglang 0.5.23, models/deepseek_v4.py"}
  has: {sizes: [8, 1, 1], words: --attn-dp-size 8 --ep-size 8}
"L27: the top level of config.json names the scheme":
  plan: {model: nvidia/Kimi-K2.5-NVFP4, gpus: 8 x B200, set: [engine=vllm],
    source: its config.json; vLLM's own order}
  has: {sizes: [8, 1, 1], weights: 70.6, precision: NVFP4}
"L32: MXFP8 is one byte":
  plan: {model: MiniMaxAI/MiniMax-M3-MXFP8, gpus: 8 x B200, set: [engine=vllm], source: its tensors}
  has: {sizes: [8, 1, 1], weights: 51.7, precision: MXFP8}
"L28: attention of GLM-5 is copied":
  plan: {model: zai-org/GLM-5-FP8, gpus: 8 x B200, set: [preset=throughput],
    source: "tests/unit/data/sglang-0.5.23-weights.json, by SGLang's own model classes"}
  has: {sizes: [8, 1, 1], words: --attn-dp-size 8, weights: 99.71}
"L30: Qwen3-Next has a draft layer and no key for it":
  plan: {model: Qwen/Qwen3-Next-80B-A3B-Instruct, gpus: 8 x H200-141G, set: [engine=vllm, preset=latency],
    source: "vllm-project/recipes, Qwen3-Next-80B-A3B-Instruct.yaml"}
  has: {sizes: [8, 1, 1], words: --speculative-config}
"L30: DeepSeek-V3.2-Exp":
  plan: {model: deepseek-ai/DeepSeek-V3.2-Exp, gpus: 8 x H200-141G, set: [engine=vllm, parsers=auto],
    source: "vllm-project/recipes, DeepSeek-V3.2-Exp.yaml"}
  has: {sizes: [8, 1, 1], words: --tokenizer-mode deepseek_v32 --enable-auto-tool-choice}
"L30: each rank has the vision encoder":
  plan: {model: Qwen/Qwen2.5-VL-72B-Instruct, gpus: 4 x A100-80G, set: [engine=vllm, preset=throughput],
    source: "vllm-project/recipes, Qwen2.5-VL-72B-Instruct.yaml"}
  has: {sizes: [4, 1, 1], words: --mm-encoder-tp-mode data, weights: 35.3}
"L31: why TP 16 over two nodes":
  plan: {model: deepseek-ai/DeepSeek-R1, gpus: 2 x 8 x H100-80G, set: [nic=eth0, hca=mlx5_0],
    source: *reasons}
  has: {sizes: [16, 1, 1], reason: All ranks share each layer}
"L31: why stages":
  plan: {model: deepseek-ai/DeepSeek-R1, gpus: 2 x 8 x H100-80G, set: [nic=eth0, hca=none], source: *reasons}
  has: {sizes: [8, 2, 1], reason: No RDMA connects the nodes}
"""
CASES = read(TABLE, TRUST, fits=True)


@pytest.mark.parametrize("name", CASES)
def test_the_plan_is_what_an_expert_expects(name: str, tmp_path: Path) -> None:
    case, expected = CASES[name]
    check(plan(case, tmp_path).services[0], expected)


def served(folder: Path, model: str, gpus: str, *lines: str) -> PlannedService:
    return plan(Case(model, "the test's docstring", gpus, [*lines, TRUST]), folder).services[0]


@pytest.mark.parametrize(
    ("engine", "reason"),
    [
        ("sglang", "it has weights in fp8 and mxfp4"),
        ("vllm", "sparse attention from compute capability 9.0 on"),
    ],
)
def test_a_mixture_is_not_converted(tmp_path: Path, engine: str, reason: str) -> None:
    """L29, SGLang issue 35420: on A100 it failed after a download of two hours; its attention has kernels
    from Hopper on.
    """
    with pytest.raises(InputError, match=reason):
        served(tmp_path, V4, "2 x 8 x A100-80G", f"engine={engine}")


def test_the_sum_over_ranks_is_stated(tmp_path: Path) -> None:
    """L31: with DP attention each rank keeps requests of its own."""
    service = plan(CASES["L5: DeepSeek-R1 for many requests"][0], tmp_path).services[0]
    assert service.fit.kv_tokens_of_replica == 8 * (service.fit.kv_tokens or 0)
    assert "in each of 8 groups with separate requests" in service.fit.reason
    assert service.layout == "TP 8 × PP 1, attention DP 8, EP 8"


def test_an_architecture_without_dp_attention_is_refused(tmp_path: Path) -> None:
    """SGLang 0.5.23, arg_groups/model_overrides/ernie45_vl.py; `preset=throughput` chose it on eight GPUs."""
    with pytest.raises(InputError, match="tensor_parallel can be 1, 2, 4") as refused:
        served(tmp_path, "baidu/ERNIE-4.5-VL-28B-A3B-PT", "8 x H100-80G", "preset=throughput")
    assert "20 attention heads are not divisible by 8" in str(refused.value)


def test_fused_attention_projections_stay_in_their_parts(tmp_path: Path) -> None:
    """SGLang 0.5.23, models/mimo_v2.py: the eight parts of MiMo-V2.5-Pro go to 1, 2, 4 or 8 ranks."""
    service = served(tmp_path, MIMO, "2 x 8 x H100-80G")
    assert (service.tensor_parallel, service.pipeline_parallel) == (8, 2)
    with pytest.raises(InputError, match="8 parts of the fused attention projections are not divisible by"):
        served(tmp_path, MIMO, "2 x 8 x H100-80G", "tensor_parallel=16")
    with pytest.raises(InputError, match="the scales of its fused attention projections are those of their"):
        served(tmp_path, MIMO, "4 x 8 x A100-80G")


def test_mxfp8_layers_have_kernels_from_hopper_on(tmp_path: Path) -> None:
    """SGLang 0.5.23, fp8_utils.py, _unsupported_mxfp8_linear; the mixture's own lowest GPU is Ampere."""
    with pytest.raises(InputError, match="its MXFP8 layers need compute capability"):
        served(tmp_path, M3, "8 x A100-80G")
    assert served(tmp_path, M3, "8 x H100-80G").fit.fits


def test_the_plan_names_every_scheme_of_a_mixture(tmp_path: Path) -> None:
    """The checkpoint was called FP8, though by its hf_quant_config.json most of it is NVFP4."""
    mixed = served(tmp_path, "nvidia/Qwen3.6-27B-NVFP4", "8 x H100-80G")
    assert mixed.precision == "FP8+NVFP4"
    assert "modelopt fp8 and nvfp4" in mixed.convert_reason


def test_small_states_are_stated_in_mib(tmp_path: Path) -> None:
    """They were printed as 0.0 GiB."""
    reason = served(tmp_path, "Qwen/Qwen3-Next-80B-A3B-Instruct", "8 x H100-80G").fit.reason
    assert re.search(r"also keeps up to \d+ MiB of states", reason)


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
@pytest.mark.parametrize("preset", ["throughput", "latency"])
@pytest.mark.parametrize("hosts", [1, 2])
def test_shorter_requests_lose_no_layout(tmp_path: Path, engine: str, preset: str, hosts: int) -> None:
    """A limit of the user's below 32,768 tokens is no lack of KV cache."""
    flag = {"sglang": "--context-length", "vllm": "--max-model-len"}[engine]
    sizes = set()
    for length in ("32768", "8192", "1024"):
        lines = (f"engine={engine}", f"preset={preset}", f"engine_args='{flag} {length}'")
        service = served(tmp_path, R1, f"{hosts} x 8 x H200-141G", *lines)
        sizes.add((service.tensor_parallel, service.data_parallel, service.expert_parallel))
    assert len(sizes) == 1
