"""How SGLang is asked whether it serves: a request for each task, the smallest there is.

Sources, in sglang/srt/entrypoints: http_server.py (paths; `/classify` answers as for an embedding),
openai/protocol.py (bodies), openai/serving_rerank.py (the answer is a list).
"""

from __future__ import annotations

from headfirst.decide.engines.base import Readiness, Task

_HEALTH = "/health_generate"
_CHAT = Readiness(
    path=_HEALTH,
    probe_path="/v1/chat/completions",
    probe_body={"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1, "temperature": 0},
    answer=("usage", "completion_tokens"),
    generates=True,
)

READINESS: dict[Task, Readiness] = {
    "chat": _CHAT,
    "vision": _CHAT,
    "embedding": Readiness(
        path=_HEALTH,
        probe_path="/v1/embeddings",
        probe_body={"input": "Hello"},
        answer=("data", 0, "embedding"),
        generates=True,
    ),
    "rerank": Readiness(
        path=_HEALTH,
        probe_path="/v1/rerank",
        probe_body={"query": "Hello", "documents": ["Hello"]},
        answer=(0, "score"),
        generates=True,
    ),
    "reward": Readiness(
        path=_HEALTH,
        probe_path="/classify",
        probe_body={"text": "Hello"},
        answer=("embedding", 0),
        generates=True,
    ),
}
