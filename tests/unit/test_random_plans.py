"""Random inventories, engine arguments and models, and hostile ones that are written out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import random_plans
from hypothesis import HealthCheck, given, settings
from random_plans import Example, examples, published

_QWEN = next(config for config in published() if config["architectures"] == ["Qwen3MoeForCausalLM"])
_VISION = next(
    config for config in published() if config["architectures"] == ["Qwen3VLForConditionalGeneration"]
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("random") / "cluster.ini"
    made.touch()
    return made


@settings(
    max_examples=500, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)
@given(examples())
def test_a_plan_holds_what_it_states_or_is_refused(path: Path, example: Example) -> None:
    """tests/long tries 20,000, other ones each time."""
    random_plans.check(example, path)


def _one_host(engine: str, config: dict[str, Any] = _QWEN, **settings: Any) -> Example:
    values = {"gpu": "H200-141G", "gpus": 8, "nic": "eth0", "hca": "none", "model": "org/m", "engine": engine}
    groups = {name: [] for name in random_plans.GROUPS} | {"head": ["n1"]}
    return Example(groups, {"n1": values | settings}, {}, [config], [60 * 10**9])


@pytest.mark.parametrize("number", ["0", "-1", "99999999999999999999", "nan", "inf"])
@pytest.mark.parametrize("engine", ["sglang", "vllm", "lmdeploy"])
def test_no_number_of_an_argument_ends_in_a_traceback(path: Path, engine: str, number: str) -> None:
    for flag in random_plans.LAYOUT[engine]:
        random_plans.check(_one_host(engine, engine_args=[flag, number]), path)


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        (engine, [flag, "0"])
        for engine, flags in {
            "sglang": (
                "--dp-size",
                "--ep-size",
                "--attn-dp-size",
                "--moe-dp-size",
                "--moe-dense-tp-size",
                "--page-size",
            ),
            "vllm": ("--data-parallel-size", "--max-num-seqs", "--max-num-batched-tokens", "--block-size"),
            "lmdeploy": ("--dp", "--ep", "--cp", "--session-len", "--max-batch-size"),
        }.items()
        for flag in flags
    ],
)
def test_a_number_that_ends_the_engine_is_refused(path: Path, engine: str, words: list[str]) -> None:
    assert not random_plans.check(_one_host(engine, engine_args=words), path)
    assert random_plans.check(_one_host(engine, engine_args=[words[0], "1"]), path)


@pytest.mark.parametrize("flag", random_plans.OBJECTS)
def test_no_object_of_an_argument_ends_in_a_traceback(path: Path, flag: str) -> None:
    for engine in ("sglang", "vllm", "lmdeploy"):
        for value in random_plans.OBJECTS[flag]:
            random_plans.check(_one_host(engine, engine_args=[flag, value]), path)


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        (None, "model_type", {"a": 1}),
        (None, "num_hidden_layers", 10**20),
        ("vision_config", "depth", float("nan")),
        ("vision_config", "depth", float("inf")),
        ("vision_config", "hidden_size", [1]),
        ("vision_config", "patch_size", 0),
        ("vision_config", "deepstack_visual_indexes", "a" * 100),
    ],
)
def test_no_value_of_a_config_ends_in_a_traceback(path: Path, part: str | None, key: str, value: Any) -> None:
    inner = part or "text_config"
    config = {**_VISION, inner: {**_VISION[inner], key: value}}
    for engine in ("sglang", "vllm"):
        random_plans.check(_one_host(engine, config), path)
        random_plans.check(replace(_one_host(engine), configs=[{**_QWEN, key: value}]), path)


@pytest.mark.parametrize("value", [[], {}, True, "99999999999999999999", "9" * 400 + "g", 10**20])
def test_an_amount_of_memory_that_is_none_is_refused(path: Path, value: Any) -> None:
    for name in ("gpu_memory", "shm_size"):
        assert not random_plans.check(_one_host("sglang", **{name: value}), path)
