"""What an image answers about its engine: it decides, it is data, and what it lacks refuses nothing."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from clusters import catalogued, read
from headfirst.common.untrusted import UntrustedError
from headfirst.decide import engines
from headfirst.decide.engines import answers
from headfirst.decide.engines.base import Engine
from headfirst.decide.hardware import gpus
from headfirst.decide.package_data import read_json
from known_models import model

IMAGE = "sha256:" + "0123456789ab" + "c" * 52


def document(name: str, **changes: Any) -> dict[str, Any]:
    written = copy.deepcopy(read_json(f"headfirst.decide.engines.{name}", "snapshot.json"))
    return {**written, **changes}


def engine(name: str, **changes: Any) -> Engine:
    given = answers.of_document(document(name, **changes), name, where="node01", image=IMAGE)
    return engines.get(name, answers=given)


@pytest.mark.parametrize("name", engines.names())
def test_tables_that_an_image_lacks_refuse_nothing(name: str) -> None:
    asked = engine(name, version="9.8.7", support={})
    for id in ("Qwen/Qwen3-8B", "deepseek-ai/DeepSeek-R1", "Qwen/Qwen3-VL-8B-Instruct", "openai/gpt-oss-20b"):
        for checkpoint in (model(id), model(id, architecture="NewForCausalLM")):
            assert asked.support_problems(checkpoint, gpus.find("H100-80G"), checkpoint.tasks[0], {}) == []
        assert asked.fp8_capability(model(id)) is not None
    assert asked.version == "9.8.7"


@pytest.mark.parametrize("name", engines.names())
def test_each_table_may_be_missing(name: str) -> None:
    support = document(name)["support"]
    qwen, gpu = model("Qwen/Qwen3-8B"), gpus.find("A100-80G")
    for missing in support:
        asked = engine(name, support={key: value for key, value in support.items() if key != missing})
        assert asked.support_problems(qwen, gpu, "chat", {}) == [], missing


def test_the_image_decides_and_the_inventory_names_it() -> None:
    asked = engine("sglang", version="0.5.24.dev3+g12ab", support={"architectures": {"NewForCausalLM": []}})
    assert asked.described_by == "the image sha256:0123456789ab"
    assert asked.default_image("cuda") == "lmsysorg/sglang:v0.5.23"
    assert engines.get("sglang", asked.version).version == "0.5.24.dev3+g12ab"
    (problem,) = asked.support_problems(model("Qwen/Qwen3-8B"), None, "chat", {})
    assert problem.startswith("SGLang 0.5.24.dev3+g12ab has no model class Qwen3ForCausalLM")


def test_what_was_not_answered_is_the_snapshots_and_noted() -> None:
    told = document("vllm", options=None, unanswered={"options": "no module named torch"})
    given = answers.of_document(told, "vllm", where="node01", image=IMAGE)
    asked, note = engines.of_image("vllm", "team/vllm:prod", answers=given)
    assert note == (
        "engine_image=team/vllm:prod did not answer options (no module named torch): as in vLLM 0.33.0."
    )
    assert asked.specification.options.keys() == engines.get("vllm").specification.options.keys()
    assert asked.check_arguments(["--new", "1", "--dtype", "new"]).problems == ()


def test_flags_that_the_image_lacks_are_not_written_where_it_works_without() -> None:
    given = document("sglang")
    given["options"] = [each for each in given["options"] if each["dest"] != "admin_api_key"]
    asked = engines.get("sglang", answers=answers.of_document(given, "sglang", where="", image=IMAGE))
    assert asked.config_file(api_key="a", admin_key="b") == {"api-key": "a"}
    assert engines.get("sglang").config_file(api_key="a", admin_key="b") == {
        "api-key": "a",
        "admin-api-key": "b",
    }


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("sglang", {"version": "0.5.23\nrm"}),
        ("sglang", {"options": [{"flags": ["; id"], "dest": "x", "type": "str"}]}),
        ("sglang", {"options": [{"flags": ["--x"], "dest": "x", "type": "str"}] * 5001}),
        ("sglang", {"support": {"architectures": {"\x1b[31m": []}}}),
        ("sglang", {"support": {"architectures": {f"A{number}": [] for number in range(2001)}}}),
        ("sglang", {"support": {"quantizations": {"fp8": {"min_capability": -1}}}}),
        ("vllm", {"support": {"quantizations": {"fp8": 10**9}}}),
        ("vllm", {"support": {"suffixes": ["For\nCausalLM"]}}),
        ("lmdeploy", {"support": {"pytorch": {"architectures": ["{{ x }}"]}}}),
        ("lmdeploy", {"more": 1}),
    ],
)
def test_what_an_image_sends_is_data(name: str, changes: dict[str, Any]) -> None:
    with pytest.raises(UntrustedError, match="the answer of the image"):
        engine(name, **changes)


def test_a_plan_is_of_what_the_image_answered(tmp_path: Path) -> None:
    given = document("sglang", version="0.5.24")
    given["options"] = [
        option
        for option in given["options"]
        if option["dest"] not in ("tool_call_parser", "sleep_on_idle", "admin_api_key")
    ]
    lines = "model=Qwen/Qwen3-8B\nparsers=auto\nengine_device=cpu\ncpu_cores=0-15\n"
    image = "engine_image=team/sglang:nightly\n"
    cluster = read(tmp_path, f"[head]\nn0 ansible_host=192.0.2.1\n[all:vars]\n{lines}{image}")
    told = answers.of_document(given, "sglang", where="n0", image=IMAGE)
    services = tuple(replace(service, answers=told) for service in cluster.services)
    (service,) = catalogued(replace(cluster, services=services)).services
    assert (service.engine_version, service.engine_described_by) == (
        "0.5.24",
        "the image sha256:0123456789ab",
    )
    assert not any("snapshot" in note for note in service.notes)
    assert service.config_file.keys() == {"api-key"}
    command = service.replicas[0].nodes[0].container.command
    assert "--reasoning-parser" in command and "--sleep-on-idle" not in command
    (line,) = service.arguments_left_out
    assert line.startswith(
        "--tool-call-parser qwen is left out: SGLang 0.5.24 does not accept it (SGLang 0.5.24 has no "
    )
