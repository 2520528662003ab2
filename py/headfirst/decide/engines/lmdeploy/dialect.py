"""LMDeploy's additions to OpenAI's API (serve/openai/protocol.py and endpoints/auxiliary.py of 0.18.0)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headfirst.decide.engines.base import PATTERN, RequestDialect, ScoreRequest


def dialect(values: Mapping[str, Any]) -> RequestDialect:
    """The requests of a server with these arguments."""
    penalty = "LMDeploy has repetition_penalty in its place"
    return RequestDialect(
        tool_parser=values.get("tool_call_parser"),
        reasoning_parser=values.get("reasoning_parser"),
        regex={"response_format": {"type": "regex_schema", "regex_schema": PATTERN}},
        reward=ScoreRequest("/pooling", texts="input", rows=("data",), score=("data",)),
        ignored={"presence_penalty": penalty, "frequency_penalty": penalty},
    )
