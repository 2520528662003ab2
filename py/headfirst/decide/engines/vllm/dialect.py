"""vLLM's additions to OpenAI's API (entrypoints/openai and entrypoints/pooling of 0.33.0)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headfirst.decide.engines.base import PATTERN, RequestDialect, ScoreRequest


def dialect(values: Mapping[str, Any]) -> RequestDialect:
    """The requests of a server with these arguments."""
    parser = values.get("reasoning_parser")
    return RequestDialect(
        tool_parser=values.get("tool_call_parser") if values.get("enable_auto_tool_choice") else None,
        reasoning_parser=None if not parser or parser.lower() == "none" else parser,
        regex={"structured_outputs": {"regex": PATTERN}},
        grammar={"structured_outputs": {"grammar": PATTERN}},
        rerank=ScoreRequest("/v1/rerank", texts="documents", rows=("results",), score=("relevance_score",)),
        reward=ScoreRequest("/pooling", texts="input", rows=("data",), score=("data",)),
        classify="/classify",
    )
