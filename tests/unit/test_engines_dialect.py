"""What clients write differently for each engine, as its arguments make it."""

from __future__ import annotations

import pytest
from headfirst.control.smoke.runner import CASES
from headfirst.decide import engines
from headfirst.decide.engines.base import RequestDialect

PARSERS = ["--reasoning-parser", "deepseek-r1", "--tool-call-parser"]


def dialect(name: str, *arguments: str) -> RequestDialect:
    engine = engines.get(name)
    return engine.request_dialect(engine.check_arguments(arguments).require())


@pytest.mark.parametrize("name", engines.names())
def test_without_parsers_there_are_none(name: str) -> None:
    found = dialect(name)
    assert (found.tool_parser, found.reasoning_parser) == (None, None)


def test_sglang() -> None:
    found = dialect("sglang", *PARSERS, "qwen25")
    assert (found.tool_parser, found.reasoning_parser) == ("qwen25", "deepseek-r1")
    assert found.grammar == {"ebnf": "{pattern}"}
    assert found.ignored.keys() == {"model", "seed"}
    assert dialect("sglang", "--enable-deterministic-inference").ignored.keys() == {"model"}


def test_vllm() -> None:
    found = dialect("vllm", "--enable-auto-tool-choice", "--reasoning-parser", "deepseek_r1",
                    "--tool-call-parser", "hermes")  # fmt: skip
    assert (found.tool_parser, found.reasoning_parser) == ("hermes", "deepseek_r1")
    assert found.regex == {"structured_outputs": {"regex": "{pattern}"}}
    assert not found.ignored


@pytest.mark.parametrize(
    ("name", "words", "left_out"),
    [
        ("sglang", "--stream-interval 64", ()),
        ("sglang", "--allow-auto-truncate", ("limits.too-long",)),
        ("sglang", '--limit-mm-data-per-request {"image":0}', ("vision.image",)),
        ("sglang", '--limit-mm-data-per-request {"image":2}', ()),
        ("sglang", "--language-model-only", ("vision.image",)),
        ("vllm", "--max-logprobs 1", ("sampling.logprobs",)),
        ("vllm", "--max-logprobs -1", ()),
        ("vllm", '--limit-mm-per-prompt {"image":0}', ("vision.image",)),
        ("vllm", "--language-model-only", ("vision.image",)),
        ("lmdeploy", "--language-model-only", ("vision.image",)),
    ],
)
def test_cases_that_the_arguments_rule_out(name: str, words: str, left_out: tuple[str, ...]) -> None:
    assert tuple(dialect(name, *words.split()).left_out) == left_out
    assert set(left_out) <= set(CASES)


def test_a_limit_of_requests() -> None:
    assert dialect("sglang", "--max-queued-requests", "8").at_once == 8
    assert dialect("vllm", "--max-num-queued-reqs", "8").at_once == 8
    # LMDeploy's others wait (serve/openai/api_server.py, ConcurrencyLimitMiddleware).
    assert dialect("lmdeploy", "--max-concurrent-requests", "8").at_once is None


def test_vllm_uses_the_parser_with_automatic_calls_only() -> None:
    assert dialect("vllm", "--tool-call-parser", "hermes").tool_parser is None


def test_lmdeploy() -> None:
    found = dialect("lmdeploy", *PARSERS, "qwen")
    assert (found.tool_parser, found.reasoning_parser) == ("qwen", "deepseek-r1")
    assert (found.grammar, found.rerank, found.classify) == (None, None, None)
    assert found.ignored.keys() == {"presence_penalty", "frequency_penalty"}
