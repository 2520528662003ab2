"""Presets: the rules of each engine are what its parser accepts, and a person's arguments win over them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import get_args

import pytest
import yaml
from headfirst.control.cli.app import app
from headfirst.decide import engines
from headfirst.decide.engines import presets as engine_presets
from headfirst.decide.engines.base import Engine
from headfirst.decide.engines.layout import Machines
from headfirst.decide.engines.presets import ArgumentRule, LayoutRule, Preset
from headfirst.decide.hardware import gpus
from headfirst.decide.model import catalogue, families
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.model.task import Task
from headfirst.decide.plan.presets import Situation, choose
from headfirst.decide.plan.sizing.fit import memory, memory_of
from headfirst.decide.plan.sizing.parallel import LayoutChooser
from known_models import model
from together import together
from typer.testing import CliRunner

ENGINES = [engines.get(name) for name in engines.names()]


def _kinds() -> list[str]:
    """One model of each family, architecture, task and quantisation, with draft layers and without."""
    kinds = {}
    for id in reversed(catalogue.ids()):
        its = model(id)
        family = families.find(its)
        key = (family and family.name, its.architecture, families.task(its), its.quantization_name)
        kinds[(*key, bool(its.nextn_layers))] = id
    return sorted(kinds.values())


KINDS = _kinds()


def situation(
    checkpoint: Checkpoint,
    *arguments: str,
    preset: Preset | None = None,
    parsers: bool = False,
    task: Task = "chat",
    gpu: str = "H200-141G",
    tensor: int = 16,
    pipeline: int = 1,
    engine: str | Engine = "sglang",
) -> Situation:
    """On as many nodes with eight GPUs as the ranks need."""
    engine = engines.get(engine) if isinstance(engine, str) else engine
    return Situation(
        checkpoint=checkpoint,
        engine=engine,
        task=task,
        preset=preset,
        parsers=parsers,
        gpu=gpus.find(gpu),
        machines=Machines(max(1, tensor * pipeline // 8), 8),
        layout=engine.layout(tensor, pipeline, engine.check_arguments(arguments).values),
        dtype=checkpoint.dtype,
        user_arguments=arguments,
    )


def searched(preset: Preset) -> Situation:
    """DeepSeek-R1 on eight H200, with the layout that the preset leads to."""
    engine, checkpoint, gpu = engines.get("sglang"), model(), gpus.find("H200-141G")
    assert gpu is not None
    memories = memory_of(checkpoint, gpu, engine, dtype="fp8")
    spread = LayoutChooser(checkpoint, Machines(1, 8), engine, {}, "fp8", memory=memories, preset=preset)
    arguments = spread.choose().candidate.arguments
    return replace(situation(checkpoint, preset=preset, tensor=8), layout_arguments=arguments)


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_the_engines_parser_accepts_each_rule(engine: Engine) -> None:
    refused, merged = [], []
    rules: list[ArgumentRule | LayoutRule] = [
        *engine_presets.of(engine.name).rules,
        *engine_presets.of(engine.name).layouts,
    ]
    for rule in rules:
        words = [
            re.sub(r"{(tensor|groups|copies)}", "8", re.sub(r"{(context|chunk)}", "32768", word))
            for flag, value in rule.arguments.items()
            for word in ([flag, value] if value else [flag])
        ]
        checked = engine.check_arguments(words)
        refused += [f"{words}: {problem}" for problem in checked.problems]
        if len(checked.values) != len(rule.arguments):  # each flag sets one thing
            merged.append(f"{words}: {checked.values}")
    assert refused == []
    assert merged == []


@pytest.mark.parametrize("name", engines.names())
def test_each_rule_names_families_that_exist_and_a_page(name: str) -> None:
    names = {family.name for family in families.families()}
    for rule in engine_presets.of(name).rules:
        assert set(rule.families) <= names, rule
        assert rule.source.startswith("https://"), rule
        assert rule.reason.endswith("."), rule
        assert not (rule.always and rule.presets), rule


@pytest.mark.parametrize("id", ["acme/support-1b", "google/translategemma-27b-it", "google/medgemma-4b-it"])
def test_sglang_is_asked_for_images_where_it_leaves_them_out(id: str) -> None:
    """configs/model_config.py, mm_disabled_models; each model with such a class, whatever its name.

    Inkling is among them, and not in multimodal_model_archs: it is served for text in any case.
    """
    engine = engines.get("sglang")
    asked = engine.answers.support.able("images_when_asked") & engine.answers.support.able("multimodal")
    assert len(asked) == 3
    for architecture in asked:
        described = model().model_copy(update={"id": id, "architecture": architecture, "vision": True})
        task = families.task(described)
        assert task == "vision"
        assert "--enable-multimodal" in choose(situation(described, task=task, engine=engine)).arguments


@pytest.mark.parametrize("name", engines.names())
def test_every_kind_of_model_takes_every_preset(name: str) -> None:
    """The newest version; tests/engines reads the commands of each."""
    assert len(KINDS) > 160
    engine = engines.get(name)
    for id, preset in product(KINDS, get_args(Preset)):
        choice = choose(situation(model(id), preset=preset, parsers=True, engine=engine, tensor=1))
        assert not engine.check_arguments(choice.arguments).problems


@together(
    ("id", "architecture", "family"),
    [
        ("deepseek-ai/DeepSeek-R1-0528", "DeepseekV3ForCausalLM", "deepseek-r1"),
        ("deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", "Qwen3ForCausalLM", "deepseek-r1-distill"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "LlamaForCausalLM", "deepseek-r1-distill"),
        ("deepseek-ai/DeepSeek-V3-0324", "DeepseekV3ForCausalLM", "deepseek-v3"),
        ("deepseek-ai/DeepSeek-V3.1-Terminus", "DeepseekV3ForCausalLM", "deepseek-v3.1"),
        ("deepseek-ai/DeepSeek-V3.2-Exp", "DeepseekV32ForCausalLM", "deepseek-v3.2-exp"),
        ("deepseek-ai/DeepSeek-V3.2-Speciale", "DeepseekV32ForCausalLM", "deepseek-v3.2-speciale"),
        ("deepseek-ai/DeepSeek-V3.2", "DeepseekV32ForCausalLM", "deepseek-v3.2"),
        ("Qwen/Qwen2.5-72B-Instruct-AWQ", "Qwen2ForCausalLM", "qwen2.5"),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "Qwen2_5_VLForConditionalGeneration", "qwen2.5-vl"),
        ("Qwen/QwQ-32B", "Qwen2ForCausalLM", "qwq"),
        ("Qwen/Qwen3-32B", "Qwen3ForCausalLM", "qwen3"),
        ("/data/Qwen3-30B-A3B/", "Qwen3MoeForCausalLM", "qwen3"),
        ("Qwen/Qwen3-235B-A22B-Thinking-2507", "Qwen3MoeForCausalLM", "qwen3-thinking"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", "Qwen3MoeForCausalLM", "qwen3-instruct"),
        ("Qwen/Qwen3-Coder-480B-A35B-Instruct", "Qwen3MoeForCausalLM", "qwen3-coder"),
        ("Qwen/Qwen3-Coder-Next", "Qwen3NextForCausalLM", "qwen3-coder"),
        ("Qwen/Qwen3-Next-80B-A3B-Thinking", "Qwen3NextForCausalLM", "qwen3-next-thinking"),
        ("Qwen/Qwen3.5-122B-A10B", "Qwen3_5MoeForConditionalGeneration", "qwen3.5"),
        ("acme/support-27b", "Qwen3_5ForConditionalGeneration", "qwen3.5"),
        ("nvidia/Qwen3.5-397B-A17B-NVFP4", "Qwen3_5MoeForConditionalGeneration", "qwen3.5-397b"),
        ("Qwen/Qwen3.6-27B-FP8", "Qwen3_5ForConditionalGeneration", "qwen3.6"),
        ("Qwen/Qwen3.6-35B-A3B", "Qwen3_5MoeForConditionalGeneration", "qwen3.6-moe"),
        ("Qwen/Qwen3Guard-Gen-8B", "Qwen3ForCausalLM", "qwen3-guard"),
        ("deepseek-ai/DeepSeek-V4-Pro", "DeepseekV4ForCausalLM", "deepseek-v4"),
        ("sgl-project/DeepSeek-V4-Flash-FP8", "DeepseekV4ForCausalLM", "deepseek-v4-flash"),
        ("deepseek-ai/DeepSeek-V4-Flash-0731", "DeepseekV4ForCausalLM", "deepseek-v4-dspark"),
        ("deepseek-ai/DeepSeek-V4-Pro-DSpark", "DeepseekV4ForCausalLM", "deepseek-v4-dspark"),
        ("deepseek-ai/DeepSeek-V4.1-Flash-1017", "DeepseekV4ForCausalLM", "deepseek-v4.1"),
        ("nvidia/Kimi-K2.7-Code-NVFP4", "KimiK25ForConditionalGeneration", "kimi-k2.5"),
        ("moonshotai/Kimi-K3", "KimiK3ForConditionalGeneration", "kimi-k3"),
        ("moonshotai/Kimi-Linear-48B-A3B-Instruct", "KimiLinearForCausalLM", "kimi-linear"),
        ("zai-org/GLM-5.1-FP8", "GlmMoeDsaForCausalLM", "glm-5"),
        ("zai-org/GLM-5.2", "GlmMoeDsaForCausalLM", "glm-5.2"),
        ("zai-org/GLM-4.7-Flash", "Glm4MoeLiteForCausalLM", "glm-4.7"),
        ("zai-org/GLM-4.6V-Flash", "Glm4vForConditionalGeneration", "glm-4.5v"),
        ("nvidia/MiniMax-M3-NVFP4", "MiniMaxM3SparseForConditionalGeneration", "minimax-m3"),
        ("google/gemma-4-31B-it", "Gemma4ForConditionalGeneration", "gemma-4"),
        ("google/gemma-3-27b-it", "Gemma3ForConditionalGeneration", "gemma-3"),
        ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8", "NemotronHForCausalLM", "nemotron-3-super"),
        ("nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4", "NemotronHForCausalLM", "nemotron-3.5"),
        ("nvidia/NVIDIA-Nemotron-Nano-9B-v2", "NemotronHForCausalLM", "nemotron-nano-2"),
        ("stepfun-ai/Step-3.5-Flash", "Step3p5ForCausalLM", "step-3.5"),
        ("stepfun-ai/Step-3.7-Flash-NVFP4", "Step3p7ForConditionalGeneration", "step-3.7-nvfp4"),
        ("XiaomiMiMo/MiMo-V2-Flash", "MiMoV2FlashForCausalLM", "mimo-v2-flash"),
        ("inclusionAI/Ring-2.6-1T", "BailingMoeV2_5ForCausalLM", "ring-2.6"),
        ("inclusionAI/Ling-2.6-flash", "BailingMoeV2_5ForCausalLM", "ling-2.6"),
        ("LiquidAI/LFM2.5-1.2B-Instruct", "Lfm2ForCausalLM", "lfm2.5"),
        ("ibm-granite/granite-4.0-h-small", "GraniteMoeHybridForCausalLM", "granite-4"),
        ("mistralai/Mistral-Medium-3.5-128B", "Mistral3ForConditionalGeneration", "mistral-reasoning"),
        ("mistralai/Mistral-Large-3-675B-Instruct-2512", "MistralLarge3ForCausalLM", "mistral"),
        ("Qwen/Qwen3-VL-235B-A22B-Thinking", "Qwen3VLMoeForConditionalGeneration", "qwen3-vl-thinking"),
        ("Qwen/Qwen3-VL-8B-Instruct", "Qwen3VLForConditionalGeneration", "qwen3-vl"),
        ("Qwen/Qwen3-Embedding-8B", "Qwen3ForCausalLM", "qwen3-embedding"),
        ("Qwen/Qwen3-Reranker-0.6B", "Qwen3ForCausalLM", "qwen3-reranker"),
        ("Skywork/Skywork-Reward-Llama-3.1-8B", "LlamaForSequenceClassification", "reward"),
        ("Qwen/Qwen2.5-Math-RM-72B", "Qwen2ForRewardModel", "reward"),
        ("meta-llama/Llama-3.3-70B-Instruct", "LlamaForCausalLM", "llama-3"),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "Llama4ForConditionalGeneration", "llama-4"),
        ("zai-org/GLM-4.6", "Glm4MoeForCausalLM", "glm-4.5"),
        ("zai-org/GLM-4.7-FP8", "Glm4MoeForCausalLM", "glm-4.7"),
        ("zai-org/GLM-4.5V", "Glm4vMoeForConditionalGeneration", "glm-4.5v"),
        ("moonshotai/Kimi-K2-Instruct-0905", "DeepseekV3ForCausalLM", "kimi-k2"),
        ("moonshotai/Kimi-K2-Thinking", "DeepseekV3ForCausalLM", "kimi-k2-thinking"),
        ("openai/gpt-oss-120b", "GptOssForCausalLM", "gpt-oss"),
        ("MiniMaxAI/MiniMax-M2.5", "MiniMaxM2ForCausalLM", "minimax-m2"),
        ("mistralai/Mistral-Small-3.2-24B-Instruct-2506", "Mistral3ForConditionalGeneration", "mistral"),
        ("mistralai/Magistral-Small-2507", "MistralForCausalLM", "mistral-reasoning"),
    ],
)
def test_families_are_recognised(id: str, architecture: str, family: str) -> None:
    found = families.find(model().model_copy(update={"id": id, "architecture": architecture}))
    assert found is not None
    assert found.name == family


@pytest.mark.parametrize(
    ("id", "architecture"),
    [("meta-llama/Llama-3.1-405B", "LlamaForCausalLM"), ("acme/foo-7b", "Qwen2ForCausalLM")],
)
def test_a_model_of_no_family_gets_no_parser(id: str, architecture: str) -> None:
    checkpoint = model("Qwen/QwQ-32B").model_copy(update={"id": id, "architecture": architecture})
    assert families.find(checkpoint) is None
    choice = choose(situation(checkpoint, parsers=True, tensor=8))
    assert choice.arguments == ()
    assert len(choice.left_out) == 2


def test_nothing_is_added_unasked() -> None:
    for id in catalogue.ids():
        assert choose(situation(model(id), "--stream-interval", "2")).arguments == ("--stream-interval", "2")


FAMILIES = sorted({family.name: family for family in reversed(families.families())}.items())


def of_family(family: families.Family) -> Checkpoint:
    """R1's sizes under a name and an architecture of the family's."""
    pattern = family.ids[0] if family.ids else "model"
    name = re.sub(r"\[(.).*?\]", r"\1", pattern).replace("*", "")
    architecture = next((text.replace("*", "Foo") for text in family.architectures), "LlamaForCausalLM")
    return model().model_copy(update={"id": f"acme/{name}", "architecture": architecture})


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_each_family_has_parsers_and_a_way_to_low_latency_or_a_reason_why_not(engine: Engine) -> None:
    for name, family in FAMILIES:
        if family.task not in ("chat", "vision"):
            continue
        checkpoint = of_family(family)
        described = families.find(checkpoint)
        assert described is not None
        assert described.name == name
        choice = choose(situation(checkpoint, preset="latency", parsers=True, engine=engine, tensor=8))
        values = engine.check_arguments(choice.arguments).values
        for purpose, title in (
            ("reasoning", "adds no reasoning parser: "),
            ("tools", "adds no parser of tool calls: "),
            ("drafts", "adds no speculative decoding: "),
        ):
            is_chosen = bool(engine_presets.DESTINATIONS[purpose] & values.keys())  # type: ignore[index]
            lines = [line for line in choice.left_out if title in line]
            assert is_chosen or lines or any("is left out" in line for line in choice.left_out), (
                name,
                purpose,
            )
            assert not (is_chosen and lines), (name, purpose)


@together(
    ("family", "engine", "reasoning", "tools", "drafts"),
    [
        ("deepseek-v4", "sglang", "deepseek-v4", "deepseekv4", "EAGLE"),
        ("deepseek-v4", "vllm", "deepseek_v4", "deepseek_v4", "mtp 2"),
        ("deepseek-v4", "lmdeploy", "deepseek-v4", "deepseek-v4", None),
        ("deepseek-v4-dspark", "vllm", "deepseek_v4", "deepseek_v4", "dspark 7"),
        ("qwen3.5", "sglang", "qwen3", "qwen3_coder", "EAGLE"),
        ("qwen3.5", "vllm", "qwen3", "qwen3_coder", "mtp 1"),
        ("qwen3.5", "lmdeploy", "default", "qwen3coder", None),
        ("qwen3.6", "vllm", "qwen3", "qwen3_coder", "mtp 3"),
        ("qwen3-next", "sglang", None, "qwen", "EAGLE"),
        ("qwen3-next", "vllm", None, "hermes", "mtp 2"),
        ("gemma-4", "sglang", "gemma4", "gemma4", None),
        ("gemma-4", "vllm", "gemma4", "gemma4", None),
        ("minimax-m3", "sglang", "minimax-m3", "minimax-m3", None),
        ("minimax-m3", "vllm", "minimax_m3", "minimax_m3", None),
        ("kimi-k3", "sglang", "kimi_k3", "kimi_k3", None),
        ("kimi-k3", "vllm", "kimi_k3", "kimi_k3", None),
        ("glm-5.2", "sglang", "glm45", "glm47", "EAGLE"),
        ("glm-5.2", "vllm", "glm45", "glm47", "mtp 5"),
        ("nemotron-3-super", "sglang", "nemotron_3", "qwen3_coder", "EAGLE"),
        ("nemotron-3-super", "vllm", "nemotron_v3", "qwen3_xml", "mtp 3"),
        ("step-3.7", "sglang", "step3p5", "step3p5", "EAGLE"),
        ("step-3.7", "vllm", "step3p5", "step3p5", "mtp 3"),
        ("mimo-v2.5", "sglang", "mimo", "mimo", "EAGLE"),
        ("mimo-v2.5", "vllm", "mimo", "mimo", "mtp 1"),
        ("deepseek-r1", "vllm", "deepseek_r1", "deepseek_v3", "mtp 1"),
    ],
)
def test_low_latency_as_the_recipes_have_it(
    family: str, engine: str, reasoning: str | None, tools: str | None, drafts: str | None
) -> None:
    """vLLM's recipes (2026-08), SGLang's cookbook, LMDeploy's own tests; the rules have the pages."""
    case = situation(
        of_family(dict(FAMILIES)[family]), preset="latency", parsers=True, engine=engine, tensor=8
    )
    values = case.engine.check_arguments(choose(case).arguments).values
    assert values.get("reasoning_parser") == reasoning
    assert values.get("tool_call_parser") == tools
    config = values.get("speculative_config")
    text = f"{config['method']} {config['num_speculative_tokens']}" if config else None
    assert (text or values.get("speculative_algorithm")) == drafts


@together("preset", get_args(Preset))
@together("engine", ENGINES)
def test_a_preset_brings_an_argument_an_offer_or_a_reason(engine: Engine, preset: Preset) -> None:
    for id in KINDS:
        for gpu in ("H200-141G", "A100-80G"):
            choice = choose(situation(model(id), preset=preset, engine=engine, tensor=1, gpu=gpu))
            assert choice.chosen or choice.left_out, (id, gpu)


@pytest.mark.parametrize("name", engines.names())
def test_reasons_are_clauses_with_a_page(name: str) -> None:
    names = {family.name for family in families.families()}
    for entry in engine_presets.of(name).absences:
        assert set(entry.families) <= names, entry
        assert entry.source.startswith("https://"), entry
        assert not entry.reason.endswith("."), entry


DECISIONS = yaml.safe_load(
    (Path(__file__).parent / "data" / "parsers_without_rule.yml").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("flag", ["--reasoning-parser", "--tool-call-parser"])
@pytest.mark.parametrize("name", engines.names())
def test_each_parser_of_the_engines_has_a_rule_or_a_reason(name: str, flag: str) -> None:
    """A new version with a new parser fails here until somebody decides about it."""
    option = engines.get(name).specification.options[flag]
    registered = set(option.get("registered") or option["choices"])
    used = {rule.arguments[flag] for rule in engine_presets.of(name).rules if flag in rule.arguments}
    decided = DECISIONS[name][flag]
    assert registered - used - decided.keys() == set(), "neither a rule nor a reason"
    assert decided.keys() - registered == set(), "no version has it"
    assert decided.keys() & used == set(), "a rule has it"


def test_what_costs_precision_is_offered_and_not_chosen() -> None:
    for name, offer in (
        ("sglang", "--kv-cache-dtype fp8_e4m3"),
        ("vllm", "--kv-cache-dtype fp8"),
        ("lmdeploy", "--quant-policy 8"),
    ):
        engine = engines.get(name)
        choice = choose(situation(model("Qwen/Qwen3-32B"), preset="long-context", engine=engine, tensor=1))
        assert not {"kv_cache_dtype", "quant_policy"} & engine.check_arguments(choice.arguments).values.keys()
        (line,) = (line for line in choice.left_out if offer in line)
        assert "is offered, not chosen: " in line
        assert line.endswith("To use it, add it to engine_args.")


def test_no_offer_of_what_the_image_has_no_kernel_for() -> None:
    engine, r1 = engines.get("lmdeploy"), model("deepseek-ai/DeepSeek-R1")
    unknown = situation(r1, preset="long-context", engine=engine, tensor=8)
    known = replace(unknown, image=engine.default_image("cuda"))
    offers = [[line for line in choose(image).left_out if "offered" in line] for image in (unknown, known)]
    assert [len(lines) for lines in offers] == [1, 0]


def test_no_offer_of_what_the_user_sets_or_the_checkpoint_has() -> None:
    set_by_user = choose(situation(model(), "--kv-cache-dtype", "fp8_e4m3", preset="long-context"))
    assert not any("offered" in line for line in set_by_user.left_out)
    quantization = model().quantization
    assert quantization is not None
    checkpoint = model().model_copy(
        update={"quantization": quantization.model_copy(update={"kv_cache": "fp8"})}
    )
    assert not any(
        "offered" in line for line in choose(situation(checkpoint, preset="long-context")).left_out
    )


@pytest.mark.parametrize("name", ["sglang", "vllm"])
def test_no_offer_of_an_fp8_cache_where_the_cache_is_compressed_already(name: str) -> None:
    checkpoint, engine = model("deepseek-ai/DeepSeek-V4-Pro"), engines.get(name)
    choice = choose(situation(checkpoint, preset="long-context", engine=engine, tensor=8))
    assert not any("--kv-cache-dtype" in line for line in choice.left_out)


def test_what_a_gpu_cannot_do_is_stated() -> None:
    choice = choose(situation(model(), preset="long-context", gpu="A100-80G"))
    (line,) = choice.left_out[-1:]
    assert "--kv-cache-dtype fp8_e4m3 is left out: it needs compute capability 8.9, unlike A100" in line


@pytest.mark.parametrize(("gpu", "offers"), [("B200", True), ("RTX-PRO-6000", False), ("H200-141G", False)])
def test_a_kernel_of_one_major_capability_is_offered_there_alone(gpu: str, offers: bool) -> None:
    pro = of_family(dict(FAMILIES)["deepseek-v4"])
    choice = choose(situation(pro, preset="throughput", engine="vllm", gpu=gpu))
    kernel = "deep_gemm_mega_moe is offered, not chosen"
    assert any(kernel in line for line in choice.left_out) == offers


def test_a_rule_for_another_gpu_is_no_news_where_one_is_for_this() -> None:
    flash = of_family(dict(FAMILIES)["deepseek-v4-flash"])
    for gpu, tokens in (("H200-141G", 1), ("B200-180G", 2)):
        choice = choose(situation(flash, preset="latency", gpu=gpu, engine="vllm", tensor=8))
        values = engines.get("vllm").check_arguments(choice.arguments).values
        assert values["speculative_config"] == {"method": "mtp", "num_speculative_tokens": tokens}
        assert not any("capability" in line for line in choice.left_out)


@pytest.mark.parametrize(
    ("id", "engine", "reason"),
    [
        ("Qwen/Qwen3-32B", "vllm", "the checkpoint has no draft layers"),
        (
            "moonshotai/Kimi-K2.5",
            "vllm",
            "it needs a draft model (draft_model); the recipes name one (for K2.5",
        ),
        ("deepseek-ai/DeepSeek-R1", "lmdeploy", "a kernel (FlashMLA) that its image has for Hopper alone"),
    ],
)
def test_why_there_is_no_speculative_decoding(id: str, engine: str, reason: str) -> None:
    choice = choose(situation(model(id), preset="latency", engine=engine, tensor=1, gpu="B300-288G"))
    (line,) = (line for line in choice.left_out if "speculative decoding" in line)
    assert line.startswith("preset=latency adds no speculative decoding: ")
    assert reason in line


@pytest.mark.parametrize(
    ("id", "engine", "line"),
    [
        ("Qwen/Qwen3-Coder-480B-A35B-Instruct", "sglang", "Qwen3-Coder and Coder-Next is no reasoning model"),
        ("openai/gpt-oss-120b", "vllm", "vLLM separates gpt-oss's channels itself"),
        ("Qwen/Qwen2-7B", "vllm", "this id names no known family of Qwen2ForCausalLM"),
        ("MiniMaxAI/MiniMax-M2", "lmdeploy", "no recipe for MiniMax-M2 to M2.7 has one for LMDeploy 0.18.0"),
    ],
)
def test_why_there_is_no_reasoning_parser(id: str, engine: str, line: str) -> None:
    choice = choose(situation(model(id), parsers=True, engine=engine, tensor=1))
    (text,) = (text for text in choice.left_out if "reasoning parser" in text)
    assert text.startswith(f"parsers=auto adds no reasoning parser: {line}")


@pytest.mark.parametrize("method", ["mtp", "dspark"])
def test_memory_counts_the_draft_layers_that_a_rule_loads(method: str) -> None:
    """DSpark's layers are in the target's checkpoint, too (config/speculative.py)."""
    engine, gpu = engines.get("vllm"), gpus.find("H200-141G")
    assert gpu is not None
    used = {"speculative_config": {"method": method, "num_speculative_tokens": 1}}
    elsewhere = {"speculative_config": {**used["speculative_config"], "model": "acme/draft"}}
    layout = engine.layout(8, 1, {})
    assert engine.memory_use(model(), gpu, layout, used).draft_layers == 1
    assert engine.memory_use(model(), gpu, layout, elsewhere).draft_layers == 0


def test_a_task_without_text_has_no_parsers() -> None:
    embedding = model("Qwen/Qwen3-Embedding-8B")
    choice = choose(situation(embedding, parsers=True, task="embedding", tensor=1))
    assert choice.left_out == ("parsers=auto adds nothing: task=embedding generates no text.",)
    choice = choose(situation(embedding, preset="latency", parsers=True, task="embedding", tensor=1))
    assert choice.left_out == (
        "preset=latency adds no argument of its own: no rule of SGLang is for task=embedding.",
    )


def test_dp_attention_lowers_the_conservativeness_once() -> None:
    """SGLang multiplies it by 0.3 under DP attention (arg_groups/parallel_hook.py)."""
    dp = choose(searched("throughput")).arguments
    assert "--attn-dp-size" in dp
    assert "--schedule-conservativeness" not in dp
    tp = choose(situation(model("Qwen/Qwen3-32B"), preset="throughput", tensor=8)).arguments
    assert tp[-2:] == ("--schedule-conservativeness", "0.3")


def test_each_preset_of_deepseek_r1() -> None:
    parsers = choose(situation(model(), parsers=True)).chosen
    assert [(one.flag, one.value) for one in parsers] == [
        ("--reasoning-parser", "deepseek-r1"),
        ("--tool-call-parser", "deepseekv3"),
    ]
    assert "--speculative-algorithm EAGLE" in " ".join(choose(situation(model(), preset="latency")).arguments)
    throughput = choose(searched("throughput")).arguments
    assert throughput[:6] == ("--attn-dp-size", "8", "--ep-size", "8", "--chunked-prefill-size", "65536")
    assert choose(situation(model(), preset="long-context")).arguments == ("--chunked-prefill-size", "4096")


def test_a_pipeline_gets_no_draft_layers() -> None:
    choice = choose(situation(model(), preset="latency", tensor=8, pipeline=2))
    assert "--speculative-algorithm" not in choice.arguments
    assert choice.left_out == (
        "preset=latency adds no speculative decoding: it works without pipeline parallelism only.",
    )


def test_the_users_argument_wins_and_the_conflict_is_told() -> None:
    choice = choose(situation(model(), "--schedule-conservativeness", "1", preset="throughput"))
    assert choice.arguments[-2:] == ("--schedule-conservativeness", "1")
    assert choice.arguments.count("--schedule-conservativeness") == 1
    assert any(
        "--schedule-conservativeness 0.3 is left out: engine_args sets another value" in line
        for line in choice.left_out
    )


def test_the_same_argument_of_the_user_is_no_conflict() -> None:
    choice = choose(situation(model(), "--reasoning-parser", "deepseek-r1", parsers=True))
    assert choice.left_out == ()
    assert choice.arguments.count("--reasoning-parser") == 1
    # A rule whose one flag the user sets is left out as a whole.
    choice = choose(situation(model(), "--speculative-num-steps", "1", preset="latency"))
    assert "--speculative-algorithm" not in choice.arguments


def test_what_does_not_fit_is_left_out() -> None:
    """On a GPU whose memory the model alone fills."""
    case = situation(model(), preset="latency", gpu="H100-80G")
    gpu = case.gpu
    assert gpu is not None
    least = next(
        smaller
        for gib in range(40, 80)
        if memory(
            case.checkpoint,
            smaller := replace(gpu, memory_bytes=gib << 30),
            case.layout,
            case.engine,
            dtype="fp8",
            arguments={},
        ).fits
    )
    choice = choose(replace(case, gpu=least))
    assert "--speculative-algorithm" not in choice.arguments
    assert any("would not fit into the memory" in line for line in choice.left_out)


def test_what_the_engine_refuses_is_left_out() -> None:
    class Refuses:
        def __getattr__(self, name: str) -> object:
            return getattr(engines.get("sglang"), name)

        def support_problems(self, *arguments: object) -> list[str]:
            values = arguments[-1]
            assert isinstance(values, dict)
            return ["no EAGLE there"] if "speculative_algorithm" in values else []

    refusing = replace(situation(model(), preset="latency"), engine=Refuses())  # type: ignore[arg-type]
    assert any("no EAGLE there" in line for line in choose(refusing).left_out)


def test_a_rule_for_one_version_has_a_reason_in_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = engine_presets.ArgumentRule(
        arguments={"--reasoning-parser": "beam"},
        reason="For the newer version.",
        source="https://example.org",
    )
    changed = engine_presets.of("vllm").model_copy(update={"rules": (rule,)})
    monkeypatch.setattr(engine_presets, "of", lambda name: changed)
    newer = engines.get("vllm")
    options = [
        option | {"registered": ("mistral",)} if "--reasoning-parser" in option["flags"] else option
        for option in newer.answers.options
    ]
    answers = replace(newer.answers, version="0.31.0", options=tuple(options), image="sha256:" + "a" * 64)
    newer, older = (
        choose(situation(model(), parsers=True, engine=engine, tensor=8))
        for engine in (newer, engines.get("vllm", answers=answers))
    )
    assert newer.arguments == ("--reasoning-parser", "beam")
    assert older.arguments == ()
    assert older.left_out[0] == (
        "--reasoning-parser beam is left out: vLLM 0.31.0 does not accept it "
        "(--reasoning-parser cannot be 'beam'). It is for: for the newer version."
    )
    assert not any("no reasoning parser" in line for line in older.left_out)


@pytest.mark.parametrize(
    "arguments", [("--ep-size", "8"), ("--ep-size", "16")], ids=["another value", "the same value"]
)
def test_a_rule_that_the_user_decides_ends_no_other(arguments: tuple[str, str]) -> None:
    """All rules after it count as without the argument."""
    alone, chosen = (
        {argument.flag for argument in choose(situation(model(), *words, preset="throughput")).chosen}
        for words in ((), arguments)
    )
    assert chosen == alone - {"--ep-size"}


def test_the_plan_shows_each_choice_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    inventory = Path(__file__).resolve().parents[2] / "inventories" / "h20x2.ini"
    result = CliRunner().invoke(app, ["plan", str(inventory), "-e", "preset=throughput", "--commands"])
    assert result.exit_code == 0, result.output
    for part in (
        "--attn-dp-size 16 --ep-size 16",
        "Each group of ranks keeps the KV cache of requests of its own",
        "https://docs.sglang.io/cookbook/",
    ):
        assert part in result.output
    assert "--attn-dp-size 16 --ep-size 16 --chunked-prefill-size 131072" in " ".join(
        result.output.replace("\\\n", "").split()
    )


def test_what_is_not_chosen_is_in_the_text_the_json_and_the_report(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    inventory = str(Path(__file__).resolve().parents[2] / "inventories" / "h20x2.ini")
    settings = ["-e", "model=Qwen/Qwen3-32B", "-e", "preset=latency", "-e", "engine=vllm"]
    line = "preset=latency adds no speculative decoding: the checkpoint has no draft layers."
    text = CliRunner().invoke(app, ["plan", inventory, *settings]).output
    assert f"  Engine arguments that are not chosen:\n    {line}\n" in text
    plan = json.loads(CliRunner().invoke(app, ["plan", inventory, *settings, "--json"]).output)
    assert line in plan["services"][0]["arguments_left_out"]
    page = tmp_path / "report.html"
    written = CliRunner().invoke(app, ["report", inventory, *settings, "-o", str(page)])
    assert written.exit_code == 0, written.output
    assert line in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("id", "task"),
    [
        ("Qwen/Qwen3-Embedding-8B", "embedding"),
        ("/data/Qwen3-Reranker-4B/", "rerank"),
        ("Qwen/Qwen3-32B", "chat"),
        ("somebody/else", "chat"),
    ],
)
def test_the_task_comes_from_the_family(id: str, task: str) -> None:
    assert families.task_of_id(id) == task
    assert families.task(model("Qwen/Qwen3-0.6B").model_copy(update={"id": id})) == task
    assert families.task(model()) == "chat"
