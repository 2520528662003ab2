"""What vLLM refuses of a model, a GPU, a layout and a length, and how it divides the memory."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from headfirst.decide import engines
from headfirst.decide.engines.base import Task
from headfirst.decide.engines.layout import Layout, Machines
from headfirst.decide.engines.vllm import lora, memory
from headfirst.decide.hardware import gpus
from headfirst.decide.model import catalogue, quantization
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.plan.sizing.fit import fit
from headfirst.decide.plan.types import Fit
from known_models import model
from together import together

ENGINE = engines.get("vllm")
GEMMA = {"architecture": "Gemma3ForCausalLM"}
# What vLLM's own functions computed.
RECORD: dict[str, Any] = json.loads(
    (Path(__file__).parent / "data/vllm-0.33.0-memory.json").read_text(encoding="utf-8")
)
QWEN_VL = "Qwen/Qwen3-VL-235B-A22B-Instruct"
NEMOTRON, LAGUNA = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "poolside/Laguna-XS.2-FP8"
R1, LLAMA = "deepseek-ai/DeepSeek-R1", "meta-llama/Llama-3.1-405B"
QWEN, NEXT = "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "Qwen/Qwen3-Next-80B-A3B-Instruct-FP8"
WIDE_AWQ = model(QWEN, dtype="awq", intermediate_size=29568)


def values(arguments: str) -> dict[str, Any]:
    return dict(ENGINE.check_arguments(shlex.split(arguments)).require())


def layout_problems(
    checkpoint: Checkpoint, tensor: int, *, nodes: int = 1, pipeline: int = 1, arguments: str = ""
) -> list[str]:
    given = values(arguments)
    layout, machines = ENGINE.layout(tensor, pipeline, given), Machines(nodes, None)
    return ENGINE.layout_problems(checkpoint, machines, layout, dtype=checkpoint.dtype, values=given)


@pytest.mark.parametrize("id", RECORD["models"])
def test_no_tensor_size_is_accepted_that_vllm_refuses(id: str) -> None:
    checkpoint = model(id, dtype="bf16", weight_block_size=None)
    ours = {size for size in range(1, 65) if not layout_problems(checkpoint, size)}
    theirs = set(RECORD["models"][id]["tensor_sizes"])
    assert ours <= theirs
    # vLLM's configuration knows no widths; the model's layers refuse these sizes later.
    more = {problem for size in theirs - ours for problem in layout_problems(checkpoint, size)}
    assert all("KV heads can neither" in problem or "not divisible by" in problem for problem in more)


@together(
    ("checkpoint", "nodes", "tensor", "pipeline", "arguments", "words"),
    [
        (model(R1), 1, 12, 1, "", "128 attention heads are not divisible by 12"),
        (model(R1), 1, 32, 1, "", "intermediate size of 2048 in 32 parts gives 64, not divisible by the FP8"),
        (model(R1), 1, 32, 1, "--enable-expert-parallel", "18432 in 32 parts gives 576, not"),
        (model(NEXT), 1, 8, 1, "--enable-expert-parallel", "shared expert size of 512 in 8 parts gives"),
        (model(NEXT, dtype="bf16"), 1, 3, 1, "", "shared expert size of 512 is not divisible by 3"),
        (WIDE_AWQ, 1, 8, 1, "", "gives 3696, not divisible by the AWQ"),
        (model(QWEN), 1, 4, 1, "--enable-expert-parallel", "needs a model with experts"),
        (model(QWEN), 1, 4, 65, "", "the model has only 64 layers"),
        (model(QWEN, architecture="BertModel"), 1, 4, 2, "", "no pipeline parallelism for BertModel"),
        (model(R1), 2, 8, 1, "--data-parallel-size 3", "3 data-parallel groups and 2 nodes"),
        (model(QWEN), 1, 4, 1, "-pcp 2", "prefill context parallelism multiplies the ranks"),
        (model("poolside/Laguna-S-2.1"), 2, 16, 1, "", "72 attention heads are not divisible by 16"),
        (model("openai/gpt-oss-120b"), 2, 16, 1, "", "8 KV heads are not divisible by 16"),
        (model(NEMOTRON), 2, 16, 1, "", "8 groups of Mamba-2 are not divisible by 16"),
        (model("RedHatAI/Qwen3-32B-quantized.w4a16"), 4, 32, 1, "", "gives 800, not divisible by the INT4"),
        (model(LAGUNA), 1, 16, 1, "--enable-expert-parallel --data-parallel-size 2", "512 in 16 parts"),
        (model(QWEN_VL), 4, 32, 1, "", "16 attention heads of the part that reads images are not divisible"),
    ],
)
def test_layouts_that_are_refused(
    checkpoint: Checkpoint, nodes: int, tensor: int, pipeline: int, arguments: str, words: str
) -> None:
    found = layout_problems(checkpoint, tensor, nodes=nodes, pipeline=pipeline, arguments=arguments)
    assert any(words in problem for problem in found)


@pytest.mark.parametrize(
    ("id", "tensor", "keywords"),
    [
        (LLAMA, 16, {"nodes": 2}),
        (LLAMA, 8, {"nodes": 2, "pipeline": 2}),
        (QWEN, 4, {}),
        (R1, 16, {"nodes": 2}),
        (R1, 1, {"nodes": 2, "arguments": "--data-parallel-size 16 --enable-expert-parallel"}),
        (R1, 8, {"nodes": 4, "arguments": "--data-parallel-size 2 --enable-expert-parallel"}),
        (NEXT, 4, {}),
        # Sequence parallelism leaves the shared experts whole.
        (NEXT, 8, {"nodes": 2, "arguments": "--data-parallel-size 2 --enable-expert-parallel"}),
        # The shared experts are BF16.
        ("poolside/Laguna-S-2.1-FP8", 8, {"arguments": "--enable-expert-parallel"}),
        ("stepfun-ai/Step-3.7-Flash-FP8", 8, {"arguments": "--enable-expert-parallel"}),
        # FP8 with one scale a tensor.
        ("tencent/Hy3-FP8", 8, {}),
        # The part that reads images can be whole on each rank.
        (QWEN_VL, 32, {"nodes": 4, "arguments": "--mm-encoder-tp-mode data"}),
        (QWEN_VL, 32, {"nodes": 4, "arguments": "--language-model-only"}),
        (QWEN_VL, 16, {"nodes": 4}),
        ("google/gemma-4-E4B-it", 8, {"nodes": 4}),  # its class does not divide the 12 heads
    ],
)
def test_published_layouts_are_accepted(id: str, tensor: int, keywords: dict[str, Any]) -> None:
    assert layout_problems(model(id), tensor, **keywords) == []


def refused(checkpoint: Checkpoint, gpu: str | None, arguments: str = "", task: Task = "chat") -> list[str]:
    return ENGINE.support_problems(checkpoint, gpus.find(gpu) if gpu else None, task, values(arguments))


def test_the_tables_have_what_everybody_uses() -> None:
    has = ENGINE.answers.support
    for name in ("LlamaForCausalLM", "DeepseekV3ForCausalLM", "Qwen3MoeForCausalLM", "GptOssForCausalLM"):
        can = has.abilities(name)
        assert can is not None and {"generate", "pp", "lora"} <= can
    assert "pooling" in (has.abilities("BertModel") or ())
    # Not in the registry: the causal model with another head.
    assert "generate" in (has.abilities("Qwen3ForSequenceClassification") or ())
    assert len(has.architectures) > 300
    assert has.capability("awq") == (7, 5)
    assert has.capability("auto-round") == (6, 0)
    assert has.capability("aqlm") is None


def test_ranks_and_exchanges_are_those_of_the_options() -> None:
    options = ENGINE.specification.options
    assert tuple(options["--max-lora-rank"]["choices"]) == lora._RANKS
    assert set(options["--all2all-backend"]["choices"]) >= memory._BATCHED_DATA


@pytest.mark.parametrize("gpu", ["A100-80G", "H100-80G"])
def test_every_model_of_the_catalogue_is_served(gpu: str) -> None:
    # Of other engines only: INT8 in blocks.
    for id in set(catalogue.ids()) - {"meituan/DeepSeek-R1-Block-INT8"}:
        checkpoint = model(id)
        problems = refused(checkpoint, gpu, task=checkpoint.tasks[0])
        assert all("from compute capability" in problem for problem in problems), problems


@together(
    ("changes", "gpu", "arguments", "task", "words"),
    [
        ({"architecture": "NoneForCausalLM"}, "H100-80G", "", "chat", "does not have the architecture None"),
        ({"architecture": "BertModel"}, "H100-80G", "", "chat", "gives embeddings or scores and does not"),
        ({}, "H100-80G", "", "vision", "gives Qwen2ForCausalLM no images"),
        ({"architecture": "BeamForCausalLM"}, None, "--enable-lora", "chat", "no LoRA for BeamForCausalLM"),
        ({"dtype": "bitsandbytes"}, "H100-80G", "", "chat", "does not have the quantisation bitsandbytes"),
        ({"dtype": "blockwise_int8"}, "A100-80G", "", "chat", "have the quantisation blockwise_int8"),
        ({"dtype": "int8"}, "A100-80G", "", "chat", "its config.json has no quantization_config"),
        ({"dtype": "mxfp4"}, "T4", "", "chat", "mxfp4 from compute capability 8.0 on, unlike T4"),
        ({}, "V100-32G", "", "chat", "has kernels from compute capability 7.5 on, unlike V100-32G"),
    ],
)
def test_what_is_refused(
    changes: dict[str, object], gpu: str | None, arguments: str, task: Task, words: str
) -> None:
    (problem,) = refused(model(QWEN, **changes), gpu, arguments, task)
    assert words in problem


@pytest.mark.parametrize("task", ["embedding", "rerank", "reward"])
def test_models_that_generate_are_made_to_pool(task: Task) -> None:
    assert refused(model(QWEN), "H100-80G", task=task) == []


@pytest.mark.parametrize("gpu", ["T4", "A100-40G", "A100-80G", "H100-80G", "H200-141G", "B200"])
def test_the_largest_step_is_vllms_default(gpu: str) -> None:
    record = RECORD["batches"][gpu]
    step = memory.batch(gpus.find(gpu), Layout(1), model(QWEN), {})
    assert (step.tokens, step.requests) == (record["tokens"], record["requests"])


def graphs(gpu: str, arguments: str = "") -> int:
    use = ENGINE.memory_use(model(QWEN), gpus.find(gpu), Layout(1), values(arguments))
    return (use.terms.get("cuda_graphs", 256 << 20) >> 20) - 256


@pytest.mark.parametrize(
    ("gpu", "arguments", "captured"),
    [
        ("H100-80G", "", 51),
        ("B200", "", 83),
        ("H100-80G", "--max-num-seqs 16", 7),  # up to 32
        ("H100-80G", "--cudagraph-capture-sizes 1 2 4", 3),
        ("H100-80G", "--max-cudagraph-capture-size 8", 4),
        ("H100-80G", "--enforce-eager", 0),
        ("H100-80G", "--compilation-config.cudagraph_mode NONE", 0),
    ],
)
def test_each_captured_size_takes_memory(gpu: str, arguments: str, captured: int) -> None:
    assert graphs(gpu, arguments) == captured * 8


def memory_fit(id: str, gpu: str, layout: Layout, arguments: str = "") -> Fit:
    its, given = model(id), values(arguments)
    return fit(its, gpus.find(gpu), layout, ENGINE, dtype=its.dtype, arguments=given)


def test_a_model_whose_longest_request_does_not_fit_is_refused_with_the_flag() -> None:
    refused = memory_fit(QWEN, "A100-40G", Layout(2))
    assert refused.fits is False
    longest = refused.longest_request
    assert longest is not None and 0 < longest < 131072
    assert f"set --max-model-len to {longest} or less" in refused.reason
    assert memory_fit(QWEN, "A100-40G", Layout(2), f"--max-model-len {longest}").fits is True
    assert memory_fit(QWEN, "A100-40G", Layout(2), "--max-model-len auto").fits is True


def test_estimates_refuse_nothing() -> None:
    """What fits without the activations and the graphs, which vLLM measures, is planned with a sentence."""
    sure = memory_fit(QWEN, "A100-40G", Layout(2))
    assert sure.longest_request is not None
    assert sure.estimates == ["activations", "cuda_graphs"]
    more = memory_fit(QWEN, "A100-40G", Layout(2), f"--max-model-len {sure.longest_request + 2048}")
    assert (more.fits, more.uncertain) == (True, True)
    assert "This includes estimates (activations and cuda graphs), which vLLM measures" in more.reason
    assert "set --max-model-len to" in more.reason


def test_more_memory_and_fewer_graphs_make_a_larger_cache() -> None:
    def pool(arguments: str) -> int:
        tokens = memory_fit(QWEN, "A100-80G", Layout(4), arguments).kv_tokens
        assert tokens is not None
        return tokens

    assert pool("--gpu-memory-utilization 0.95") > pool("") > pool("--gpu-memory-utilization 0.8")
    assert pool("--enforce-eager") > pool("") > pool("--max-num-seqs 1024")
    assert pool("--kv-cache-memory-bytes 1g") == 10**9 // (2 * 2 * 128 * 2 * 64) // 16 * 16
    assert pool("--num-gpu-blocks-override 100 --block-size 32") == 3200


def test_data_parallel_ranks_divide_the_experts_and_repeat_the_attention() -> None:
    spread = ENGINE.layout(1, 1, values("--data-parallel-size 16 --enable-expert-parallel"))
    assert spread == Layout(1, 1, data=16, expert=16)
    found = fit(model(R1), gpus.find("H200-141G"), spread, ENGINE, dtype="fp8", arguments={})
    assert found.fits
    # 1/16 of 610 GiB of experts, and all of the rest.
    assert 50 < found.weight_bytes_per_rank / (1 << 30) < 60


@pytest.mark.parametrize(
    ("changes", "gpu", "arguments", "dtype"),
    [
        ({}, "L4", "", None),
        ({}, "T4", "", "fp16"),
        ({}, "L4", "--dtype float32", "fp32"),
        ({}, "L4", "--dtype half", "fp16"),
        ({"dtype": "fp32"}, "L4", "", "bf16"),
        ({"dtype": "fp32"}, "T4", "", "fp16"),
        ({"dtype": "awq"}, "T4", "", None),
        (GEMMA, "L4", "", None),
        (GEMMA, "T4", "", "fp32"),
        (GEMMA | {"dtype": "fp16"}, "L4", "", "bf16"),
        (GEMMA | {"dtype": "fp32"}, "T4", "", None),
    ],
)
def test_the_type_that_it_computes_in(
    changes: dict[str, object], gpu: str, arguments: str, dtype: str | None
) -> None:
    computing = ENGINE.computing(model(QWEN, **changes), gpus.find(gpu), values(arguments))
    assert (computing and computing.dtype) == dtype


def quantized(dtype: str, config: dict[str, object]) -> Checkpoint:
    return model(QWEN, dtype=dtype, quantization=quantization.read(config, "x"))


def test_fp8_has_the_lowest_capability_of_its_method() -> None:
    modelopt = quantized("fp8", {"quant_method": "modelopt", "quant_algo": "FP8"})
    assert ENGINE.fp8_capability(modelopt) == (8, 0)
    assert ENGINE.fp8_capability(quantized("fp8", {"quant_method": "compressed-tensors"})) == (7, 5)
    assert ENGINE.fp8_capability(quantized("fp8", {"quant_method": "fbgemm_fp8"})) is None
    assert ENGINE.fp8_capability(model(R1)) == (7, 5)
