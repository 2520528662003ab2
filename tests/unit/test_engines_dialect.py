"""What clients write differently for each engine, as its arguments make it."""

from __future__ import annotations

import pytest
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


def test_vllm_uses_the_parser_with_automatic_calls_only() -> None:
    assert dialect("vllm", "--tool-call-parser", "hermes").tool_parser is None


def test_lmdeploy() -> None:
    found = dialect("lmdeploy", *PARSERS, "qwen")
    assert (found.tool_parser, found.reasoning_parser) == ("qwen", "deepseek-r1")
    assert (found.grammar, found.rerank, found.classify) == (None, None, None)
    assert found.ignored.keys() == {"presence_penalty", "frequency_penalty"}
