"""What SGLang refuses of a model, a GPU and arguments, and of a layout: before anything is started."""

from __future__ import annotations

import shlex

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


V32 = model("deepseek-ai/DeepSeek-V3.2")
# Of any architecture with such a config.json (configs/model_config.py, is_deepseek_dsa).
INDEXED = {"architecture": "LongcatFlashForCausalLM", "mla": V32.mla, "index": V32.index}


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


@together(
    ("changes", "gpu", "arguments", "task", "words"),
    [
        ({"architecture": "JambaForCausalLM"}, "H100-80G", "", "chat", "has no model class JambaForCausalLM"),
        (
            {},
            "V100-32G",
            "",
            "chat",
            "needs compute capability 7.5, unlike V100-32G (compute capability 7.0)",
        ),
        (INDEXED, "A100-80G", "", "chat", "sparse attention needs"),
        ({"dtype": "awq"}, "V100-32G", "", "chat", "needs compute capability 7.5"),
        (
            {"dtype": "gptq"},
            "T4",
            "",
            "chat",
            "gptq_marlin needs compute capability 8.0, unlike T4 (compute capability 7.5)",
        ),
        ({"dtype": "aqlm"}, "H100-80G", "", "chat", "does not load checkpoints quantised with aqlm"),
        ({"dtype": "int8"}, "A100-80G", "", "chat", "--quantization w8a8_int8 where"),
        ({"dtype": "bf16"}, "H100-80G", "--quantization awq", "chat", "this one is BF16"),
        ({"dtype": "awq"}, "H100-80G", "--quantization fp8", "chat", "is quantised with awq, not with fp8"),
        (
            {},
            "T4",
            "--quantization fp8",
            "chat",
            "fp8 needs compute capability 8.0, unlike T4 (compute capability 7.5)",
        ),
        ({}, "A100-80G", "--quantization w8a8_fp8", "chat", "w8a8_fp8 needs compute capability 8.9"),
        ({"architecture": "Qwen3Model"}, "L4", "", "chat", "does not generate text: set task=embedding"),
        (
            {"architecture": "Qwen2ForRewardModel"},
            "L4",
            "",
            "chat",
            "does not generate text: set task=reward",
        ),
        (
            {"architecture": "BertForSequenceClassification"},
            "L4",
            "",
            "chat",
            "does not generate text: set task=rerank",
        ),
        ({"architecture": "Qwen3NextForCausalLM"}, "L4", "", "embedding", "gives no embeddings"),
        ({}, "L4", "", "reward", "gives no rewards"),
        ({}, "L4", "", "vision", "accepts no images"),
        ({"architecture": "BertModel"}, "L4", "", "rerank", "does not rerank"),
        ({}, "L4", "--context-length 1000000", "chat", "is more than the model's 131072"),
    ],
)
def test_what_cannot_be_served_is_one_clause(
    changes: dict[str, object], gpu: str, arguments: str, task: Task, words: str
) -> None:
    found = refused(model(LLAMA, **changes), gpu, arguments, task)
    assert len(found) == 1
    assert words in found[0]


@together(
    ("changes", "gpu", "arguments", "task"),
    [
        ({"architecture": "JambaForCausalLM"}, "H100-80G", "--model-impl transformers", "chat"),
        (INDEXED, "H100-80G", "", "chat"),
        ({"architecture": "DeepseekV32ForCausalLM"}, "A100-80G", "", "chat"),  # without an index
        ({"dtype": "awq"}, "T4", "", "chat"),
        ({"dtype": "awq"}, "L40S", "--quantization awq_marlin", "chat"),
        ({"dtype": "gptq"}, "A100-80G", "", "chat"),
        ({"dtype": "compressed-tensors"}, "A100-80G", "", "chat"),
        ({"dtype": "int8"}, "A100-80G", "--quantization w8a8_int8", "chat"),
        ({"dtype": "fp8"}, "T4", "", "chat"),  # converted before
        ({}, "A100-80G", "--quantization fp8", "chat"),
        ({"architecture": "Qwen3Model"}, "L4", "", "embedding"),
        ({"architecture": "Qwen2ForRewardModel"}, "L4", "", "reward"),
        ({"architecture": "XLMRobertaForSequenceClassification"}, "L4", "", "rerank"),
        ({"architecture": "Qwen3ForCausalLM"}, "L4", "", "rerank"),  # with a reranker's template
        ({}, "L4", "", "embedding"),  # any Llama can, with --is-embedding
        ({"architecture": "Qwen2_5_VLForConditionalGeneration"}, "L4", "", "vision"),
        ({"architecture": "Qwen2_5_VLForConditionalGeneration"}, "L4", "", "chat"),
        ({}, "L4", "--context-length 131072", "chat"),
        ({}, "L4", "--context-length 500000 --json-model-override-args '{\"rope_scaling\": {}}'", "chat"),
        ({}, "L4", "--speculative-algorithm EAGLE --speculative-draft-model-path /d", "chat"),
        ({}, "L4", "--speculative-algorithm NGRAM", "chat"),
        ({"nextn_layers": 1}, "L4", "--speculative-algorithm NEXTN", "chat"),
        ({}, None, "", "chat"),
        ({"adapters": (adapter("q_proj", "up_proj", "lm_head"), adapter("all-linear"))}, "L4", "", "chat"),
        (
            {"architecture": "Llama4ForConditionalGeneration", "adapters": (adapter("q_proj", "o_proj"),)},
            "L4",
            "",
            "chat",
        ),
        (
            {"architecture": "Qwen3_5ForConditionalGeneration", "adapters": (adapter("q_proj", "out_proj"),)},
            "L4",
            "",
            "chat",
        ),
    ],
)
def test_what_can_be_served_is_not_refused(
    changes: dict[str, object], gpu: str | None, arguments: str, task: Task
) -> None:
    assert refused(model(LLAMA, **changes), gpu, arguments, task) == []


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


MINIMAX = model(
    R1,
    architecture="MiniMaxM2ForCausalLM",
    mla=None,
    attention_heads=48,
    kv_heads=8,
    head_dim=128,
    nextn_layers=0,
    moe=Moe(experts=256, experts_per_token=8, shared_experts=0, intermediate_size=1536),
)
QWEN235 = model(
    R1,
    architecture="Qwen3MoeForCausalLM",
    mla=None,
    attention_heads=64,
    kv_heads=4,
    head_dim=128,
    nextn_layers=0,
    moe=Moe(experts=128, experts_per_token=8, shared_experts=0, intermediate_size=1536),
)


@together(
    ("checkpoint", "machines", "sizes", "arguments", "words"),
    [
        (MINIMAX, Machines(1, 8), (8, 1), "", "gives 192, not divisible by the FP8 block of 128"),
        (MINIMAX, Machines(1, 8), (8, 1), "--ep-size 8", None),
        (MINIMAX, Machines(1, 8), (4, 1), "", None),
        (QWEN235, Machines(1, 8), (8, 1), "", "gives 192"),
        (QWEN235, Machines(1, 8), (8, 1), "--ep-size 2", None),
        (QWEN235, Machines(1, 8), (4, 2), "--ep-size 8", "tensor_parallel=4 is not divisible by --ep-size 8"),
        # 576 of the dense layers are no whole block: DeepEP's recipes divide these not at all.
        (model(R1), Machines(4, 8), (32, 1), "--moe-a2a-backend deepep", "the intermediate size of 18432"),
        (
            model(R1),
            Machines(4, 8),
            (32, 1),
            "--moe-a2a-backend deepep --moe-dense-tp-size 1 --attn-dp-size 32",
            None,
        ),
        (
            model(R1),
            Machines(4, 8),
            (32, 1),
            "--ep-size 32 --moe-dense-tp-size 1",
            "the shared expert size of 2048 in 32 parts gives 64",
        ),
        (
            model("stepfun-ai/Step-3.5-Flash-FP8"),
            Machines(1, 8),
            (8, 1),
            "--ep-size 8",
            None,
        ),  # theirs are BF16
        (model(R1), Machines(2, 8), (16, 1), "--attn-dp-size 3", "not divisible by --attn-dp-size 3"),
        (model(R1), Machines(2, 8), (16, 1), "--enable-dp-attention --dp-size 16", None),
        # Their classes divide the heads among all ranks, as most of SGLang's do.
        (
            model("baidu/ERNIE-4.5-21B-A3B-PT"),
            Machines(1, 8),
            (8, 1),
            "--attn-dp-size 8 --ep-size 8",
            "does not divide the attention of Ernie4_5_MoeForCausalLM",
        ),
        (model(LLAMA), Machines(1, 8), (8, 1), "--attn-dp-size 2", "the attention of LlamaForCausalLM"),
        (
            model(LLAMA, architecture="Mistral3ForConditionalGeneration"),
            Machines(1, 8),
            (8, 1),
            "--attn-dp-size 2",
            "the attention of Mistral3ForConditionalGeneration",
        ),
        (model(LLAMA, architecture="Qwen3ForCausalLM"), Machines(1, 8), (8, 1), "--attn-dp-size 2", None),
        (model("poolside/Laguna-S-2.1"), Machines(2, 8), (16, 1), "", "72 attention heads are not divisible"),
        (
            model(INT8),
            Machines(4, 8),
            (32, 1),
            "--ep-size 32",
            "gives 576, not divisible by the INT8 block of 128",
        ),
        (
            model(NVFP4),
            Machines(4, 8),
            (32, 1),
            "--attn-dp-size 32 --ep-size 32",
            "116, not divisible by the NVFP4",
        ),
        # The part that reads images is divided as the attention; GLM's and Kimi-K3's classes are not.
        (model("google/gemma-4-E4B-it"), Machines(1, 8), (8, 1), "", "12 attention heads of the part"),
        (model("google/gemma-4-E4B-it"), Machines(1, 8), (4, 1), "", None),
        (model(QWEN_VL), Machines(4, 8), (32, 1), "", "16 attention heads of the part that reads images"),
        (model(QWEN_VL), Machines(4, 8), (32, 1), "--mm-enable-dp-encoder", None),
        (model(QWEN_VL), Machines(4, 8), (32, 1), "--attn-dp-size 32", None),
        (model("zai-org/GLM-4.5V"), Machines(1, 8), (8, 1), "", None),
        (model("Qwen/Qwen3-4B-AWQ"), Machines(1, 8), (8, 1), "", "1216, not divisible by the AWQ group"),
        (model(R1), Machines(2, 8), (8, 1), "--dp-size 2", "copies the model within one node only"),
        (
            model(R1),
            Machines(1, 8),
            (4, 1),
            "--dp-size 2 --attn-dp-size 2",
            "--dp-size and --attn-dp-size exclude",
        ),
        (model(R1), Machines(2, 8), (8, 2), "--speculative-algorithm EAGLE", "excludes pipeline"),
        (
            model(LLAMA, architecture="Qwen3NextForCausalLM"),
            Machines(2, 8),
            (8, 2),
            "",
            "cannot be divided into pipeline stages",
        ),
    ],
)
def test_layouts_are_refused_as_the_engine_would(
    checkpoint: Checkpoint, machines: Machines, sizes: tuple[int, int], arguments: str, words: str | None
) -> None:
    values = ENGINE.check_arguments(shlex.split(arguments)).require()
    layout = ENGINE.layout(*sizes, values)
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
