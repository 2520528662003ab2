"""What SGLang refuses of a model, a GPU and arguments, and of a layout: before anything is started."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from headfirst.decide import engines
from headfirst.decide.engines.base import Task
from headfirst.decide.engines.layout import Layout, Machines
from headfirst.decide.hardware import gpus
from headfirst.decide.model import catalogue, quantization
from headfirst.decide.model.adapter import AdapterConfig
from headfirst.decide.model.checkpoint import Checkpoint, Moe
from known_models import model
from together import together

ENGINE = engines.get("sglang")
R1 = "deepseek-ai/DeepSeek-R1"
INT8, NVFP4 = "meituan/DeepSeek-R1-Block-INT8", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4"
QWEN_VL = "Qwen/Qwen3-VL-235B-A22B-Instruct"
LLAMA = "deepseek-ai/DeepSeek-R1-Distill-Llama-70B"


def adapter(*targets: str) -> AdapterConfig:
    return AdapterConfig(8, 8, targets[0] if targets == ("all-linear",) else targets)


UNLIKE_T4, NO_TEXT = "unlike T4 (compute capability 7.5)", "does not generate text"
V32 = model("deepseek-ai/DeepSeek-V3.2")
# Of any architecture with such a config.json (configs/model_config.py, is_deepseek_dsa).
INDEXED: dict[str, Any] = {"architecture": "LongcatFlashForCausalLM", "mla": V32.mla, "index": V32.index}


def refused(checkpoint: Checkpoint, gpu: str | None, arguments: str = "", task: Task = "chat") -> list[str]:
    values = ENGINE.check_arguments(shlex.split(arguments)).require()
    problems = ENGINE.support_problems(checkpoint, gpus.find(gpu) if gpu else None, task, values)
    return [*problems, *ENGINE.length_problems(checkpoint, values, {})]


def test_the_table_has_what_everybody_uses() -> None:
    has = ENGINE.answers.support
    for name in ("LlamaForCausalLM", "DeepseekV3ForCausalLM", "Qwen3MoeForCausalLM"):
        assert has.has_class(name)
    assert len(has.abilities) > 250
    assert has.quantizations["awq"].min_capability == 75
    assert has.quantizations["awq"].checkpoint_only
    assert has.quantizations["fp8"].min_capability == 80
    assert not has.quantizations["fp8"].checkpoint_only
    assert "Qwen3Model" in has.able("embedding") & has.able("pooling_only")
    assert "XLMRobertaForSequenceClassification" in has.able("rerank")
    assert "Qwen3VLForConditionalGeneration" in has.able("multimodal")


def test_every_model_of_the_catalogue_that_sglang_has_is_served_on_h100_or_its_successor() -> None:
    for id in catalogue.ids():
        needs_successor = model(id).dtype == "mxfp8" or ("DeepSeek-V4" in id and id.endswith("NVFP4"))
        problems = refused(model(id), "B200-180G" if needs_successor else "H100-80G")
        if ENGINE.answers.support.has_class(model(id).architecture):
            assert problems == []
        else:
            assert "has no model class" in problems[0]


def case(gpu: str | None, arguments: str = "", task: Task = "chat", words: str = "", **changes: Any) -> Any:
    """A Llama with these changes, and a part of the one clause that refuses it, "" where it is served."""
    return changes, gpu, arguments, task, words


@together(
    ("changes", "gpu", "arguments", "task", "words"),
    [
        case("H100-80G", architecture="JambaForCausalLM", words="has no model class JambaForCausalLM"),
        case("V100-32G", words="needs compute capability 7.5, unlike V100-32G (compute capability 7.0)"),
        case("A100-80G", **INDEXED, words="sparse attention needs"),
        case("V100-32G", dtype="awq", words="needs compute capability 7.5"),
        case("T4", dtype="gptq", words=f"gptq_marlin needs compute capability 8.0, {UNLIKE_T4}"),
        case("H100-80G", dtype="aqlm", words="does not load checkpoints quantised with aqlm"),
        case("A100-80G", dtype="int8", words="--quantization w8a8_int8 where"),
        case("H100-80G", "--quantization awq", dtype="bf16", words="this one is BF16"),
        case("H100-80G", "--quantization fp8", dtype="awq", words="is quantised with awq, not with fp8"),
        case("T4", "--quantization fp8", words=f"fp8 needs compute capability 8.0, {UNLIKE_T4}"),
        case("A100-80G", "--quantization w8a8_fp8", words="w8a8_fp8 needs compute capability 8.9"),
        case("L4", architecture="Qwen3Model", words=f"{NO_TEXT}: set task=embedding"),
        case("L4", architecture="Qwen2ForRewardModel", words=f"{NO_TEXT}: set task=reward"),
        case("L4", architecture="BertForSequenceClassification", words=f"{NO_TEXT}: set task=rerank"),
        case("L4", "", "embedding", architecture="Qwen3NextForCausalLM", words="gives no embeddings"),
        case("L4", "", "reward", words="gives no rewards"),
        case("L4", "", "vision", words="accepts no images"),
        case("L4", "", "rerank", architecture="BertModel", words="does not rerank"),
        case("L4", "--context-length 1000000", words="is more than the model's 131072"),
        # Served.
        case("H100-80G", "--model-impl transformers", architecture="JambaForCausalLM"),
        case("H100-80G", **INDEXED),
        case("A100-80G", architecture="DeepseekV32ForCausalLM"),  # without an index
        case("T4", dtype="awq"),
        case("L40S", "--quantization awq_marlin", dtype="awq"),
        case("A100-80G", dtype="gptq"),
        case("A100-80G", dtype="compressed-tensors"),
        case("A100-80G", "--quantization w8a8_int8", dtype="int8"),
        case("T4", dtype="fp8"),  # converted before
        case("A100-80G", "--quantization fp8"),
        case("L4", "", "embedding", architecture="Qwen3Model"),
        case("L4", "", "reward", architecture="Qwen2ForRewardModel"),
        case("L4", "", "rerank", architecture="XLMRobertaForSequenceClassification"),
        case("L4", "", "rerank", architecture="Qwen3ForCausalLM"),  # with a reranker's template
        case("L4", "", "embedding"),  # any Llama can, with --is-embedding
        case("L4", "", "vision", architecture="Qwen2_5_VLForConditionalGeneration"),
        case("L4", architecture="Qwen2_5_VLForConditionalGeneration"),
        case("L4", "--context-length 131072"),
        case("L4", "--context-length 500000 --json-model-override-args '{\"rope_scaling\": {}}'"),
        case("L4", "--speculative-algorithm EAGLE --speculative-draft-model-path /d"),
        case("L4", "--speculative-algorithm NGRAM"),
        case("L4", "--speculative-algorithm NEXTN", nextn_layers=1),
        case(None),
        case("L4", adapters=(adapter("q_proj", "up_proj", "lm_head"), adapter("all-linear"))),
        case("L4", architecture="Llama4ForConditionalGeneration", adapters=(adapter("q_proj", "o_proj"),)),
        case("L4", architecture="Qwen3_5ForConditionalGeneration", adapters=(adapter("q_proj", "out_proj"),)),
    ],
)
def test_what_cannot_be_served_is_one_clause(
    changes: dict[str, object], gpu: str | None, arguments: str, task: Task, words: str
) -> None:
    found = refused(model(LLAMA, **changes), gpu, arguments, task)
    assert len(found) == bool(words), found
    assert words in "".join(found)


def test_fp8_without_fp8_units() -> None:
    assert ENGINE.fp8_capability(model(R1)) == (8, 9)
    assert ENGINE.fp8_capability(model(LLAMA, dtype="fp8")) == (8, 0)
    assert ENGINE.fp8_capability(model("nvidia/Llama-3.1-8B-Instruct-FP8")) == (8, 9)  # of ModelOpt
    assert ENGINE.fp8_capability(model("RedHatAI/Meta-Llama-3.1-70B-Instruct-FP8")) == (8, 0)
    assert ENGINE.fp8_capability(quantized("fp8", {"quant_method": "modelopt", "quant_algo": "FP8"})) == (
        8,
        9,
    )
    assert ENGINE.fp8_capability(quantized("fp8", {"quant_method": "fbgemm_fp8"})) is None


def quantized(dtype: str, config: dict[str, object]) -> Checkpoint:
    return model(LLAMA, dtype=dtype, quantization=quantization.read(config, "x"))


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}


@together(
    ("dtype", "config", "gpu", "arguments", "words"),
    [
        ("gptq", GPTQ, "A100-80G", "", None),
        ("gptq", GPTQ | {"group_size": -1, "bits": 8, "desc_act": True}, "A100-80G", "", None),
        ("gptq", GPTQ | {"sym": False}, "A100-80G", "", "does not load checkpoints quantised with gptq int4"),
        ("gptq", GPTQ | {"bits": 3}, "A100-80G", "", "does not load checkpoints quantised with gptq"),
        ("gptq", GPTQ | {"group_size": 256}, "A100-80G", "", "does not load checkpoints quantised with gptq"),
        ("gptq", GPTQ, "A100-80G", "--quantization humming", None),
        ("gptq", GPTQ, "A100-80G", "--quantization moe_wna16", None),
        ("modelopt", {"quant_method": "modelopt", "quant_algo": "MXFP8"}, "H100-80G", "", "mxfp8 needs"),
        ("modelopt", {"quant_method": "modelopt", "quant_algo": "NVFP4"}, "A100-80G", "", None),
        ("compressed_tensors", {"quant_method": "compressed_tensors"}, "H100-80G", "", "does not load"),
        ("fp8", {"quant_method": "compressed-tensors"}, "H100-80G", "--quantization fp8", "not with fp8"),
        ("fp8", {"quant_method": "quark"}, "H100-80G", "--quantization quark", None),
    ],
)
def test_a_quantised_checkpoint_is_loaded_by_its_own_method(
    dtype: str, config: dict[str, object], gpu: str, arguments: str, words: str | None
) -> None:
    problems = refused(quantized(dtype, config), gpu, arguments)
    assert (words in " ".join(problems)) if words else problems == []


def mixture(architecture: str, heads: int, kv_heads: int, experts: int) -> Checkpoint:
    """Of R1's size, with experts whose parts are no whole blocks of FP8."""
    moe = Moe(experts=experts, experts_per_token=8, shared_experts=0, intermediate_size=1536)
    attention = {"attention_heads": heads, "kv_heads": kv_heads, "head_dim": 128}
    return model(R1, architecture=architecture, mla=None, nextn_layers=0, moe=moe, **attention)


MINIMAX = mixture("MiniMaxM2ForCausalLM", 48, 8, 256)
ERNIE = model("baidu/ERNIE-4.5-21B-A3B-PT")
MISTRAL = model(LLAMA, architecture="Mistral3ForConditionalGeneration")
QWEN235 = mixture("Qwen3MoeForCausalLM", 64, 4, 128)


@together(
    ("checkpoint", "nodes", "sizes", "arguments", "words"),
    [
        (MINIMAX, 1, (8, 1), "", "gives 192, not divisible by the FP8 block of 128"),
        (MINIMAX, 1, (8, 1), "--ep-size 8", None),
        (MINIMAX, 1, (4, 1), "", None),
        (QWEN235, 1, (8, 1), "", "gives 192"),
        (QWEN235, 1, (8, 1), "--ep-size 2", None),
        (QWEN235, 1, (4, 2), "--ep-size 8", "tensor_parallel=4 is not divisible by --ep-size 8"),
        # 576 of the dense layers are no whole block: DeepEP's recipes divide these not at all.
        (model(R1), 4, (32, 1), "--moe-a2a-backend deepep", "the intermediate size of 18432"),
        (model(R1), 4, (32, 1), "--moe-a2a-backend deepep --moe-dense-tp-size 1 --attn-dp-size 32", None),
        (
            model(R1),
            4,
            (32, 1),
            "--ep-size 32 --moe-dense-tp-size 1",
            "expert size of 2048 in 32 parts gives 64",
        ),
        (model("stepfun-ai/Step-3.5-Flash-FP8"), 1, (8, 1), "--ep-size 8", None),  # theirs are BF16
        (model(R1), 2, (16, 1), "--attn-dp-size 3", "not divisible by --attn-dp-size 3"),
        (model(R1), 2, (16, 1), "--enable-dp-attention --dp-size 16", None),
        # Their classes divide the heads among all ranks, as most of SGLang's do.
        (ERNIE, 1, (8, 1), "--attn-dp-size 8 --ep-size 8", "does not divide the attention of Ernie4_5_Moe"),
        (model(LLAMA), 1, (8, 1), "--attn-dp-size 2", "the attention of LlamaForCausalLM"),
        (MISTRAL, 1, (8, 1), "--attn-dp-size 2", "the attention of Mistral3ForConditionalGeneration"),
        (model(LLAMA, architecture="Qwen3ForCausalLM"), 1, (8, 1), "--attn-dp-size 2", None),
        (model("poolside/Laguna-S-2.1"), 2, (16, 1), "", "72 attention heads are not divisible"),
        (model(INT8), 4, (32, 1), "--ep-size 32", "gives 576, not divisible by the INT8 block of 128"),
        (model(NVFP4), 4, (32, 1), "--attn-dp-size 32 --ep-size 32", "116, not divisible by the NVFP4"),
        # The part that reads images is divided as the attention; GLM's and Kimi-K3's classes are not.
        (model("google/gemma-4-E4B-it"), 1, (8, 1), "", "12 attention heads of the part"),
        (model("google/gemma-4-E4B-it"), 1, (4, 1), "", None),
        (model(QWEN_VL), 4, (32, 1), "", "16 attention heads of the part that reads images"),
        (model(QWEN_VL), 4, (32, 1), "--mm-enable-dp-encoder", None),
        (model(QWEN_VL), 4, (32, 1), "--attn-dp-size 32", None),
        (model("zai-org/GLM-4.5V"), 1, (8, 1), "", None),
        (model("Qwen/Qwen3-4B-AWQ"), 1, (8, 1), "", "1216, not divisible by the AWQ group"),
        (model(R1), 2, (8, 1), "--dp-size 2", "copies the model within one node only"),
        (model(R1), 1, (4, 1), "--dp-size 2 --attn-dp-size 2", "--dp-size and --attn-dp-size exclude"),
        (model(R1), 2, (8, 2), "--speculative-algorithm EAGLE", "excludes pipeline"),
        (model(LLAMA, architecture="Qwen3NextForCausalLM"), 2, (8, 2), "", "cannot be divided into pipeline"),
    ],
)
def test_layouts_are_refused_as_the_engine_would(
    checkpoint: Checkpoint, nodes: int, sizes: tuple[int, int], arguments: str, words: str | None
) -> None:
    values = ENGINE.check_arguments(shlex.split(arguments)).require()
    layout = ENGINE.layout(*sizes, values)
    machines = Machines(nodes, 8)
    found = ENGINE.layout_problems(checkpoint, machines, layout, dtype=checkpoint.dtype, values=values)
    assert (words in " ".join(found)) if words else found == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", Layout(16)),
        ("--enable-dp-attention --dp-size 16", Layout(16, attention_data=16)),
        ("--attn-dp-size 4", Layout(16, attention_data=4)),
        ("--attn-dp-size 4 --enable-dp-attention --dp-size 2", Layout(16, data=2, attention_data=4)),
        ("--dp-size 2", Layout(16, data=2)),
        ("--ep-size 4", Layout(16, expert=4)),
        ("--moe-a2a-backend deepep --ep-size 4", Layout(16, expert=16)),
    ],
)
def test_arguments_shape_the_layout(arguments: str, expected: Layout) -> None:
    values = ENGINE.check_arguments(shlex.split(arguments)).require()
    assert ENGINE.layout(16, 1, values) == expected


@pytest.mark.parametrize(
    ("changes", "gpu", "arguments", "dtype"),
    [
        ({}, "L4", "", None),
        ({}, "T4", "", "fp16"),
        ({}, "T4", "--dtype float32", "fp16"),
        ({}, "L4", "--dtype float32", "fp32"),
        ({"dtype": "fp32"}, "L4", "", "fp16"),
        ({"dtype": "fp32", "architecture": "Gemma3ForCausalLM"}, "L4", "", "bf16"),
        ({"dtype": "awq"}, "T4", "", None),
    ],
)
def test_the_type_that_it_computes_in(
    changes: dict[str, object], gpu: str, arguments: str, dtype: str | None
) -> None:
    values = ENGINE.check_arguments(shlex.split(arguments)).require()
    computing = ENGINE.computing(model(LLAMA, **changes), gpus.find(gpu), values)
    assert (computing and computing.dtype) == dtype


@pytest.mark.parametrize(
    ("gpu", "arguments", "words"),
    [
        ("H200-141G", "", ["its NVFP4 experts need --moe-runner-backend marlin on H200-141G"]),
        ("H200-141G", "--moe-runner-backend marlin", []),
        ("B200-180G", "", []),
    ],
)
def test_nvfp4_experts_of_deepseek_v4(gpu: str, arguments: str, words: list[str]) -> None:
    found = refused(model("nvidia/DeepSeek-V4-Flash-NVFP4"), gpu, arguments)
    assert [reason.partition(" (")[0] for reason in found] == words


def test_a_prefill_replica_may_have_stages_beside_draft_layers() -> None:
    assert ENGINE.disaggregation
    values = ENGINE.check_arguments(["--speculative-algorithm", "EAGLE"]).require()
    layout = ENGINE.layout(8, 2, values)
    for role, refused in (("prefill", False), ("decode", True)):
        sides = {**values, **ENGINE.disaggregation.values(role)}
        assert (
            bool(ENGINE.layout_problems(model(R1), Machines(2, 8), layout, dtype="fp8", values=sides))
            is refused
        )
