"""Presets: the rules of each engine are what its parser accepts, and a person's arguments win over them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import get_args

import pytest
from headfirst.control.cli.app import app
from headfirst.decide import engines
from headfirst.decide.engines import presets as engine_presets
from headfirst.decide.engines.base import Engine
from headfirst.decide.engines.layout import Machines
from headfirst.decide.engines.presets import Preset
from headfirst.decide.hardware import gpus
from headfirst.decide.model import catalogue, families
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.model.task import Task
from headfirst.decide.plan import presets
from headfirst.decide.plan.presets import Situation, choose
from typer.testing import CliRunner

ENGINES = [engines.get(name, version) for name in engines.names() for version in engines.versions(name)]


def model(id: str = "deepseek-ai/DeepSeek-R1") -> Checkpoint:
    found = catalogue.lookup(id)
    assert found is not None
    return found


def situation(
    checkpoint: Checkpoint,
    *arguments: str,
    preset: Preset | None = None,
    parsers: bool = False,
    task: Task = "chat",
    gpu: str = "H200-141G",
    nodes: int = 2,
    tensor: int = 16,
    pipeline: int = 1,
    engine: Engine | None = None,
) -> Situation:
    engine = engine or engines.get("sglang")
    return Situation(
        checkpoint=checkpoint,
        engine=engine,
        task=task,
        preset=preset,
        parsers=parsers,
        gpu=gpus.find(gpu),
        machines=Machines(nodes, 8),
        layout=engine.layout(tensor, pipeline, engine.check_arguments(arguments).values),
        dtype=checkpoint.dtype,
        user_arguments=arguments,
    )


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: f"{engine.name}-{engine.version}")
def test_the_engines_parser_accepts_each_rule(engine: Engine) -> None:
    refused, merged = [], []
    for rule in engine_presets.rules(engine.name):
        words = [
            word.replace("{tensor}", "8").replace("{context}", "32768")
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
    for rule in engine_presets.rules(name):
        assert set(rule.families) <= names, rule
        assert rule.source.startswith("https://"), rule
        assert rule.reason.endswith("."), rule
        assert not (rule.always and rule.presets), rule


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: f"{engine.name}-{engine.version}")
def test_every_model_of_the_catalogue_takes_every_preset(engine: Engine) -> None:
    for id, preset in product(catalogue.ids(), get_args(Preset)):
        choice = choose(situation(model(id), preset=preset, parsers=True, engine=engine, tensor=1, nodes=1))
        assert not engine.check_arguments(choice.arguments).problems


@pytest.mark.parametrize(
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
    assert choose(situation(checkpoint, parsers=True, tensor=8, nodes=1)).arguments == ()


def test_the_task_comes_from_the_family() -> None:
    embedding = model("Qwen/Qwen3-0.6B").model_copy(update={"id": "Qwen/Qwen3-Embedding-0.6B"})
    assert families.task(embedding) == "embedding"
    assert families.task(model()) == "chat"


def test_nothing_is_added_unasked() -> None:
    for id in catalogue.ids():
        assert choose(situation(model(id), "--stream-interval", "2")).arguments == ("--stream-interval", "2")


def test_parsers_alone_bring_no_tuning() -> None:
    choice = choose(situation(model(), parsers=True))
    assert [(one.flag, one.value) for one in choice.chosen] == [
        ("--reasoning-parser", "deepseek-r1"),
        ("--tool-call-parser", "deepseekv3"),
    ]


def test_each_preset_of_deepseek_r1() -> None:
    assert "--speculative-algorithm EAGLE" in " ".join(choose(situation(model(), preset="latency")).arguments)
    throughput = choose(situation(model(), preset="throughput", tensor=8, nodes=1)).arguments
    assert throughput[:4] == ("--attn-dp-size", "8", "--ep-size", "8")
    assert "--kv-cache-dtype" in choose(situation(model(), preset="long-context")).arguments
    a100 = choose(situation(model(), preset="long-context", gpu="A100-80G")).arguments
    assert "--kv-cache-dtype" not in a100, "FP8 starts with compute capability 8.9"


def test_a_pipeline_gets_no_draft_layers() -> None:
    choice = choose(situation(model(), preset="latency", tensor=8, pipeline=2))
    assert "--speculative-algorithm" not in choice.arguments


def test_the_users_argument_wins_and_the_conflict_is_told() -> None:
    choice = choose(situation(model(), "--ep-size", "4", preset="throughput"))
    assert choice.arguments[-2:] == ("--ep-size", "4")
    assert choice.arguments.count("--ep-size") == 1
    assert any("--ep-size 16 is left out: engine_args sets another value" in line for line in choice.left_out)


def test_the_same_argument_of_the_user_is_no_conflict() -> None:
    choice = choose(situation(model(), "--reasoning-parser", "deepseek-r1", parsers=True))
    assert choice.left_out == ()
    assert choice.arguments.count("--reasoning-parser") == 1


def test_a_rule_whose_one_flag_the_user_sets_is_left_out_as_a_whole() -> None:
    choice = choose(situation(model(), "--speculative-num-steps", "1", preset="latency"))
    assert "--speculative-algorithm" not in choice.arguments


def test_what_does_not_fit_is_left_out() -> None:
    choice = choose(situation(model(), preset="throughput", gpu="H20-96G"))
    assert "--attn-dp-size" not in choice.arguments
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


@pytest.mark.parametrize(
    ("parsers", "preset", "wanted"),
    [(None, None, False), (None, "latency", True), ("auto", None, True), ("none", "latency", False)],
)
def test_when_parsers_are_wanted(parsers: str | None, preset: str | None, wanted: bool) -> None:
    assert presets.wants_parsers(parsers, preset) is wanted


def test_the_plan_shows_each_choice_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    inventory = Path(__file__).resolve().parents[2] / "inventories" / "h20x2.ini"
    result = CliRunner().invoke(app, ["plan", str(inventory), "-e", "preset=throughput"])
    assert result.exit_code == 0, result.output
    for part in (
        "--ep-size 16\n",
        "Whole experts are spread",
        "https://docs.sglang.io/cookbook/",
        "is left out",
    ):
        assert part in result.output
    assert "--ep-size 16 --schedule-conservativeness 0.3" in " ".join(
        result.output.replace("\\\n", "").split()
    )


@pytest.mark.parametrize(
    ("id", "task"),
    [
        ("Qwen/Qwen3-Embedding-8B", "embedding"),
        ("/data/Qwen3-Reranker-4B/", "rerank"),
        ("Qwen/Qwen3-32B", "chat"),
        ("somebody/else", "chat"),
    ],
)
def test_the_task_by_the_id_alone(id: str, task: str) -> None:
    assert families.task_of_id(id) == task
