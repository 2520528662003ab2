"""When an engine counts as ready: its health, its models and, where these prove too little, a probe."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
from headfirst.common.errors import NotReadyError
from headfirst.common.metrics import Metrics
from headfirst.control.live import status
from headfirst.control.live.status import ReplicaTarget
from headfirst.control.live.status_types import EngineStatus
from headfirst.decide import engines
from headfirst.decide.cluster.login import HostAccess
from headfirst.decide.engines.base import ReadinessProbe

HEALTHY = ReadinessProbe(
    path="/health",
    probe_path="/v1/embeddings",
    probe_body={"input": "Hello"},
    answer=("data", 0, "embedding"),
)
GENERATES = replace(HEALTHY, generates=True)
MODELS = {"object": "list", "data": [{"id": "tiny"}, {"id": "adapter"}]}
ANSWERS: dict[str, tuple[int, Any]] = {
    "/health": (200, None),
    "/v1/models": (200, MODELS),
    "/v1/embeddings": (200, {"data": [{"embedding": [0.5]}]}),
}


def engine(
    monkeypatch: pytest.MonkeyPatch, readiness: ReadinessProbe, metrics: Metrics | None = None, **changed: Any
) -> tuple[EngineStatus, list[Any]]:
    """The status of an engine with these answers, and the requests that it got."""
    answers = {**ANSWERS, **changed}
    asked: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content or "null")
        asked.append((request.method, request.url.path, request.headers.get("Authorization"), body))
        code, document = answers[request.url.path]
        if callable(document):
            return httpx.Response(code, text=document())
        return httpx.Response(code, json=document)

    @contextmanager
    def direct(access: HostAccess, url: str) -> Iterator[str]:
        yield url

    real = httpx.Client

    def client(**given: Any) -> httpx.Client:
        return real(transport=httpx.MockTransport(answer), **given)

    monkeypatch.setattr(status, "tunnel", direct)
    monkeypatch.setattr(status.httpx, "Client", client)
    ranks = [HostAccess("node1", "node1")]
    target = ReplicaTarget("demo", 0, ranks, "http://engine", readiness, "sesame", metrics=metrics)
    return status._engine(target), asked


def test_a_health_that_proves_it_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked = engine(monkeypatch, GENERATES)
    assert found.ready
    assert found.models == ["tiny", "adapter"]
    assert [path for _, path, _, _ in asked] == ["/health", "/v1/models"]


def test_else_the_model_is_asked_with_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked = engine(monkeypatch, HEALTHY)
    assert found.ready
    assert asked[-1] == ("POST", "/v1/embeddings", "Bearer sesame", {"input": "Hello", "model": "tiny"})


@pytest.mark.parametrize(
    ("path", "answer", "problem"),
    [
        ("/health", (503, None), "/health answers 503: it is starting, or it hangs"),
        ("/v1/models", (401, None), "/v1/models answers 401"),
        ("/v1/embeddings", (500, None), "/v1/embeddings: HTTP 500"),
        ("/v1/embeddings", (200, {"data": []}), "/v1/embeddings: the answer has nothing at data.0.embedding"),
    ],
)
def test_what_is_missing(monkeypatch: pytest.MonkeyPatch, path: str, answer: Any, problem: str) -> None:
    found, _ = engine(monkeypatch, HEALTHY, **{path: answer})
    assert (found.ready, found.problem) == (False, problem)


VLLM = engines.get("vllm").metrics


def test_the_load_is_of_two_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "RATE_S", 0.2)
    tokens = iter([100, 140])

    def figures() -> str:
        lines = ["num_requests_running 3.0", "num_requests_waiting 2.0", "kv_cache_usage_perc 0.5"]
        return "".join(f"vllm:{line}\n" for line in [*lines, f"generation_tokens_total {next(tokens)}"])

    found, asked = engine(monkeypatch, GENERATES, VLLM, **{"/metrics": (200, figures)})
    assert found.load
    assert (found.load.running, found.load.queued, found.load.cache_usage) == (3, 2, 0.5)
    assert 20 < found.load.generated_tokens_per_s <= 200
    assert [path for _, path, _, _ in asked] == ["/metrics", "/health", "/v1/models", "/metrics"]


@pytest.mark.parametrize("answer", [(404, None), (200, lambda: "<html>")])
def test_an_engine_without_figures_is_ready_too(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    found, _ = engine(monkeypatch, GENERATES, VLLM, **{"/metrics": answer})
    assert found.ready
    assert found.load is None


def test_a_rank_without_a_container_on_a_host_without_nvidia_smi(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> None:
        raise NotReadyError("nvidia-smi has ended with 9", where="node1")

    @contextmanager
    def nothing(*_: object) -> Iterator[None]:
        yield None

    monkeypatch.setattr(status, "ssh", nothing)
    monkeypatch.setattr(status, "docker_client", nothing)
    monkeypatch.setattr(status, "container_fields", lambda *_: {"host": "node1", "state": "missing"})
    monkeypatch.setattr(status, "gpus", broken)
    access = HostAccess("node1", "node1")
    rank = status._rank(0, access, ReplicaTarget("demo", 0, [access], "http://engine", HEALTHY, "sesame"))
    assert (rank.state, rank.problem) == ("missing", "nvidia-smi has ended with 9")
