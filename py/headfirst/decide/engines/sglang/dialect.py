"""SGLang's additions to OpenAI's API (srt/entrypoints/http_server.py, openai/protocol.py of 0.5.23)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headfirst.decide.engines.base import PATTERN, RequestDialect, ScoreRequest


def dialect(values: Mapping[str, Any]) -> RequestDialect:
    """The requests of a server with these arguments."""
    ignored = {"model": "SGLang answers with the model it serves, whatever name the request has"}
    # sampling_batch_info.py: sampling_seed is None otherwise.
    if not values.get("enable_deterministic_inference"):
        ignored["seed"] = "SGLang uses it with --enable-deterministic-inference only"
    return RequestDialect(
        tool_parser=values.get("tool_call_parser"),
        reasoning_parser=values.get("reasoning_parser"),
        regex={"regex": PATTERN},
        grammar={"ebnf": PATTERN},
        rerank=ScoreRequest("/v1/rerank", texts="documents", rows=(), score=("score",)),
        reward=ScoreRequest("/classify", texts="text", rows=(), score=("embedding",)),
        classify="/v1/classify",
        adapter="{model}:{adapter}",
        ignored=ignored,
    )
