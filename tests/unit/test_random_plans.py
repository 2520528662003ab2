"""Random inventories, engine arguments and models, and hostile ones that are written out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import random_plans
from headfirst.common.errors import InputError
from headfirst.control.inventory import inventory
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


_SETTINGS = settings(
    max_examples=200, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_a_plan_holds_what_it_states_or_is_refused(path: Path) -> None:
    """tests/long tries 20,000, other ones each time."""

    # Where Hypothesis sees a test while pytest collects, each worker reads all modules for their constants.
    @_SETTINGS
    @given(examples())
    def holds(example: Example) -> None:
        random_plans.check(example, path)

    holds()


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


_DEEP = '{"a": ' + "[" * 5000 + "]" * 5000 + "}"


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("vllm", ["--max-model-len", "9" * 400 + "k"]),
        ("vllm", ["--max-num-batched-tokens", "9" * 400 + "M"]),
        ("vllm", ["--hf-overrides", _DEEP]),
        ("vllm", ["--speculative-config", _DEEP]),
        ("vllm", ["--hf-overrides", '{"max_position_embeddings": 1e400}']),
        ("vllm", ["--hf-overrides" + ".a" * 5000, "1"]),
        ("sglang", ["--json-model-override-args", _DEEP]),
        ("sglang", ["--json-model-override-args", '{"a": 1, "a": 2}']),
    ],
)
def test_a_number_or_an_object_that_nothing_holds_is_refused(
    path: Path, engine: str, words: list[str]
) -> None:
    assert not random_plans.check(_one_host(engine, engine_args=words), path)


@pytest.mark.parametrize("name", ["download_rate", "network_rate", "disk_rate"])
def test_a_rate_without_end_is_refused(path: Path, name: str) -> None:
    assert not random_plans.check(_one_host("sglang", **{name: "9" * 400 + "gbit"}), path)


@pytest.mark.parametrize(
    "value",
    ["A=1 A=2", '{"A": "1", "A": "2"}', "=1", {"A B": "1"}, {"A=B": "1"}, {"A": None}, {"A": ["1"]}, "1A=1"],
)
def test_an_environment_that_no_container_can_have_is_refused(path: Path, value: Any) -> None:
    for name in ("engine_env", "webui_env"):
        assert not random_plans.check(_one_host("sglang", **{name: value}), path)


@pytest.mark.parametrize("volumes", ["/a:/t /b:/t", "/a:/t /b:/t/:ro", "/a:/var/lib/headfirst/models/model"])
def test_two_folders_at_one_path_of_a_container_are_refused(path: Path, volumes: str) -> None:
    assert not random_plans.check(_one_host("sglang", engine_volumes=volumes), path)
    assert random_plans.check(_one_host("sglang", engine_volumes="/a:/t /b:/u"), path)


@pytest.mark.parametrize(
    "setting",
    [
        *(
            "tls_certificate=/x",
            "tls_key=/x",
            "tls_names=a.example",
            "proxy_port=8443",
            "router_policy=random",
        ),
        *("prometheus_port=9091", "grafana_port=3001", "spare_takeover=true", "lab_subnet=10.9.0.0/24"),
        *("router_port=8001", "drain_timeout=10", "kv_transfer=nixl", "engine_image_tarball=/x.tar"),
        *("lab_memory=4g", "cpu_cores=0-15"),
    ],
)
def test_a_setting_that_nothing_uses_has_a_note(path: Path, setting: str) -> None:
    name, _, value = setting.partition("=")
    made = random_plans.planned(_one_host("sglang", **{name: value}), path)
    assert made and any(f": {name} has no effect without " in note for note in made[1].notes)


def test_a_setting_that_is_used_or_has_its_default_has_no_note(path: Path) -> None:
    for used in (
        {"router_policy": "cache_aware", "spare_takeover": False},
        {"router_policy": "random", "drain_timeout": 10, "replicas": 2, "gpus_per_replica": 4},
        {"proxy": True, "proxy_port": 8443},
        {"tls": "local-ca", "tls_names": "a.example"},
    ):
        made = random_plans.planned(_one_host("sglang", **used), path)
        assert made and not any("has no effect" in note for note in made[1].notes)


def test_an_image_that_cannot_be_built_is_refused_by_the_plan(path: Path) -> None:
    assert not random_plans.check(_one_host("sglang", engine_image_source="build"), path)


@pytest.mark.parametrize(
    ("given_settings", "advice"),
    [
        ({"prefill_gpus_per_replica": 16}, "Write prefill_gpus_per_replica=8 or fewer."),
        ({"decode_replicas": 2}, "with a sum of 2, 4 or 8"),
    ],
)
def test_advice_names_the_settings_of_prefill_and_decode(
    path: Path, given_settings: dict[str, int], advice: str
) -> None:
    example = _one_host("vllm", **{"prefill_replicas": 1, "decode_replicas": 1, **given_settings})
    with pytest.raises(InputError) as refused, pytest.MonkeyPatch.context() as patched:
        patched.setattr(inventory, "read", lambda *_: random_plans.reading(example))
        inventory.load([path])
    assert advice in (refused.value.hint or "")
