"""How to find out that vLLM serves a task: one small request (entrypoints/openai, entrypoints/pooling)."""

from __future__ import annotations

from headfirst.decide.engines.base import Readiness, Task

_CHAT = Readiness(
    path="/health",
    probe_path="/v1/chat/completions",
    probe_body={"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1, "temperature": 0},
    answer=("usage", "completion_tokens"),
)
_TASKS: dict[Task, Readiness] = {
    "embedding": Readiness("/health", "/v1/embeddings", {"input": "Hello"}, ("data", 0, "embedding", 0)),
    "rerank": Readiness(
        "/health", "/v1/rerank", {"query": "Hello", "documents": ["Hello"]}, ("results", 0, "relevance_score")
    ),
    "reward": Readiness("/health", "/pooling", {"input": "Hello"}, ("data", 0, "data")),
}


def readiness(task: Task) -> Readiness:
    """The health path needs no key; 503 means that the engine's processes are gone."""
    return _TASKS.get(task, _CHAT)
