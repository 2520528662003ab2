"""The user's engine arguments against SGLang's own parser, kept as data."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from headfirst.common.errors import InputError
from headfirst.decide import engines
from headfirst.decide.engines import arguments as engine_arguments
from together import together

ENGINE = engines.get("sglang")
VERSION = ENGINE.version


def test_the_specification_is_that_of_the_snapshot() -> None:
    spec = engines.get("sglang").specification
    assert spec.engine == "SGLang 0.5.23"
    assert len({option["dest"] for option in spec.options.values()}) > 500
    assert spec.options["--tp-size"] is spec.options["--tensor-parallel-size"]
    assert len(spec.removed) > 75


def test_counterparts_are_flags_of_the_engines() -> None:
    known = {flag for name in engines.names() for flag in engines.get(name).specification.options}
    flags = [flag for row in engine_arguments._COUNTERPARTS for flag in row]
    assert set(flags) <= known
    assert len(flags) == len(set(flags))


@pytest.mark.parametrize(
    ("name", "words", "hint"),
    [
        ("sglang", ["--hf-token", "x"], None),  # it resembles none
        (
            "vllm",
            ["--hf-overrides", "{architectures:[A]}"],
            """It takes JSON. Write both kinds of quotes: '{"key": "value"}'.""",
        ),
        ("sglang", ["-tp"], "--tp-size is set by the plan. Set tensor_parallel in the inventory."),
        ("sglang", ["-tp=8"], "--tp-size is set by the plan. Set tensor_parallel in the inventory."),
        ("sglang", ["-dp"], "Write --dp-size."),
        ("sglang", ["-model-path"], "--model-path is set by the plan. Set model in the inventory."),
    ],
)
def test_the_whole_hint(name: str, words: list[str], hint: str | None) -> None:
    assert engines.get(name).check_arguments(words).problems[0].hint == hint


# The SGLang argument tables of the notes that this project began with: 0.4.3 (--help and server_args), 0.4.x
# (a list with explanations) and 0.5.x.
OLD_TABLES = (Path(__file__).parent / "data" / "sglang-old-flags.txt").read_text().split()


@together("flag", OLD_TABLES)
def test_a_flag_of_old_tables_is_accepted_or_refused_with_its_reason(flag: str) -> None:
    spec = engines.get("sglang", VERSION).specification
    if flag in spec.options and spec.options[flag]["dest"] not in spec.owned:
        return
    problem = engine_arguments.check(spec, [flag, "1"]).problems[0]
    assert any(words in problem.what for words in ("was removed", "is set by the plan", "is cut short"))
    assert problem.hint


def test_values_are_typed_by_destination() -> None:
    words = (
        "--mem-fraction-static 0.8 --dtype bfloat16 --chunked-prefill-size -1 --max-total-tokens=8Ki "
        "--cuda-graph-bs-decode 1 2 4 --enable-metrics --json-model-override-args '{\"a\": 1}' "
        "--attention-backend torch_native --context-length 25.6k"
    )
    arguments = ENGINE.check_arguments(shlex.split(words))
    assert arguments.problems == ()
    assert arguments.values == {
        "mem_fraction_static": 0.8,
        "dtype": "bfloat16",
        "chunked_prefill_size": -1,
        "max_total_tokens": 8192,
        "cuda_graph_bs_decode": [1, 2, 4],
        "enable_metrics": True,
        "json_model_override_args": '{"a": 1}',
        "attention_backend": "torch_native",
        "context_length": 25600,
    }


@together(
    ("words", "what", "hint"),
    [
        ("--mem-fraction-sttic 0.8", "has no --mem-fraction-sttic", "Did you mean --mem-fraction-static?"),
        ("--mem_fraction_static 0.8", "has no --mem_fraction_static", "Did you mean --mem-fraction-static?"),
        ("--mem-fraction-static much", "cannot take 'much'", "It takes a number."),
        ("--max-running-requests 1.5", "cannot take '1.5'", "It takes a whole number."),
        ("--max-total-tokens 1.5Ki", "cannot take '1.5Ki'", "8Ki"),
        ("--mem-fraction-static", "needs a value", "It takes a number."),
        ("--mem-fraction-static 50", "is out of range", "from 0.001 to 0.999"),
        ("--json-model-override-args {bad", "has a value of another type", "Write a JSON object."),
        ("--json-model-override-args null", "has a value of another type", "Write a JSON object."),
        ("--attention-backend flashinfr", "cannot be 'flashinfr'", "Did you mean flashinfer?"),
        ("--load-format what", "cannot be 'what'", "Its values are auto,"),
        ("--mem-fraction 0.8", "is cut short", "Write --mem-fraction-static."),
        ("--enable-metrics yes", "is in the place of a flag", "start with '--'"),
        ("--enable-metrics=yes", "takes no value", ""),
        ("--enable-metrics --enable-metrics", "given twice", "Keep one"),
        ("stray", "'stray' is in the place of a flag", ""),
        ("--preferred-sampling-params {", "cannot take '{'", "It takes JSON."),
        ("--enable-ep-moe", "--enable-ep-moe was removed", "between 0.5.2 and 0.5.5; write --ep-size."),
        ("--cuda-graph-max-bs 8", "--cuda-graph-max-bs was removed", "--cuda-graph-max-bs-decode"),
        ("--torchao-config int4wo-128", "--torchao-config was removed", "leave it out"),
        ("--tp 8", "--tp is set by the plan", "tensor_parallel"),
        ("--tensor-parallel-size 8", "is set by the plan", "tensor_parallel"),
        ("--node-rank 1", "is set by the plan", "rank 0"),
        ("--api-key token-abc123", "is set by the plan", "process list"),
        ("--flash-attn", "has no --flash-attn", ""),
        ("--max-num-batched-tokens 4096", "has no --max-num", "Its counterpart is --chunked-prefill-size."),
        ("--max-model-len 4096", "has no --max-model-len", "Its counterpart is --context-length."),
        ("--lora-modules a=/a", "has no --lora-modules", "Set adapters in the inventory"),
    ],
)
def test_each_mistake_is_one_problem_with_the_way_out(words: str, what: str, hint: str) -> None:
    arguments = ENGINE.check_arguments(shlex.split(words))
    assert len(arguments.problems) == 1
    assert what in arguments.problems[0].what
    assert hint in (arguments.problems[0].hint or "")


def test_all_problems_are_told_at_once_and_no_secret() -> None:
    arguments = ENGINE.check_arguments(
        ["--tp", "8", "--dtype", "bf17", "--enable-metrics", "--api-key", "token-abc123"]
    )
    with pytest.raises(InputError) as raised:
        arguments.require(where="a.ini:4")
    for words in ("--tp", "bf17", "--api-key"):
        assert words in raised.value.what
    assert "token-abc123" not in f"{raised.value} {arguments.problems}"
    assert raised.value.where == "a.ini:4"
    assert arguments.values == {"enable_metrics": True}


@pytest.mark.parametrize(
    ("image", "version", "expected", "note"),
    [
        (None, None, "0.5.23", ""),
        (None, "0.5.23", "0.5.23", ""),
        (None, "0.5.22", "0.5.22", "lmsysorg/sglang:v0.5.22 is of SGLang 0.5.22: arguments and models are"),
        ("lmsysorg/sglang:v0.5.23-cu129", None, "0.5.23", ""),
        ("lmsysorg/sglang:v0.5.22@sha256:" + "a" * 64, None, "0.5.22", "is of SGLang 0.5.22: arguments"),
        ("registry.example.org:5000/sglang:prod", "0.5.22", "0.5.22", "engine_version=0.5.22: arguments"),
        ("registry.example.org:5000/sglang:prod", "0.5.23", "0.5.23", ""),
        ("registry.example.org:5000/sglang:prod", None, "0.5.23", "has a tag without a version"),
        ("registry.example.org/team/own:v0.3.0", "0.5.22", "0.5.22", "engine_version=0.5.22"),  # theirs
        ("lmsysorg/sglang:v0.5.22.post1", None, "0.5.22.post1", "snapshot of SGLang 0.5.23"),
        ("lmsysorg/sglang:v0.5.23rc0", None, "0.5.23rc0", "snapshot of SGLang 0.5.23"),
    ],
)
def test_the_version_is_that_of_the_image(
    image: str | None, version: str | None, expected: str, note: str
) -> None:
    engine, said = engines.of_image("sglang", image, version)
    assert engine.version == expected
    assert note in said and bool(note) == bool(said)


def test_the_image_of_a_device_has_its_own_version() -> None:
    engine, note = engines.of_image("vllm", None, device="cpu")
    assert (engine.version, engine.default_image("cpu")) == ("0.32.0", "headfirst/vllm-cpu:0.32.0")
    assert note.startswith("headfirst/vllm-cpu:0.32.0 is of vLLM 0.32.0: arguments and models are checked")


@pytest.mark.parametrize(
    ("image", "version", "what", "hint"),
    [
        ("lmsysorg/sglang:v0.5.23", "0.5.22", "is of version 0.5.23", "Remove engine_version"),
        (None, "newest", "engine_version=newest is not a version", "such as 0.5.23."),
        (None, "0.5.23; id", "is not a version", "such as 0.5.23."),
    ],
)
def test_a_version_that_cannot_be(image: str | None, version: str, what: str, hint: str) -> None:
    with pytest.raises(InputError, match=what) as raised:
        engines.of_image("sglang", image, version, where="a.ini:3")
    assert hint in (raised.value.hint or "")
    assert raised.value.where == "a.ini:3"


def test_names_are_found_without_loading_an_engine() -> None:
    program = "import sys; from headfirst.decide import engines; engines.names(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "sglang" in engines.names()
    assert "headfirst.decide.engines.sglang.engine" not in loaded.stdout.split()


def test_unknown_engine() -> None:
    with pytest.raises(InputError, match="Unknown engine 'sglan'") as raised:
        engines.get("sglan")
    assert raised.value.hint == "Did you mean sglang?"
