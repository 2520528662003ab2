"""The probes against a server that answers as told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import HTTPServer
from typing import Any

import pytest
from ansible_collections.headfirst.serving.plugins.module_utils import http_probe, readiness
from serving import QuietHandler, listening


class Server(HTTPServer):
    """Answers every request with `status` and `answer`, and remembers the last one."""

    status = 200
    answer: object = None
    asked: tuple[str, str | None, object] = ("", None, None)


class Handler(QuietHandler):
    server: Server

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked = (self.path, self.headers["Authorization"], json.loads(body or "null"))
        text = json.dumps(self.server.answer).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_POST = do_GET


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server(("127.0.0.1", 0), Handler)
    with listening(running):
        yield running


def url(server: Server) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}"


def asked(server: Server, how: dict[str, Any]) -> tuple[bool, str]:
    return readiness.serves(
        lambda path, body: http_probe.ask(url(server) + path, "sesame", body, 5), how, "demo"
    )


def reply(content: str | None, tokens: int, **more: str) -> dict[str, object]:
    return {"choices": [{"message": {"content": content, **more}}], "usage": {"completion_tokens": tokens}}


def test_health_is_200_and_nothing_else(server: Server) -> None:
    assert asked(server, {"path": "/health"}) == (True, "HTTP 200")
    assert server.asked == ("/health", "Bearer sesame", None)
    server.status = 503
    assert asked(server, {"path": "/health"})[0] is False


def test_the_server_itself_is_asked_and_over_http_alone(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert http_probe.ask(url(server) + "/health", None, None, 5)[0] == 200
    status, _text, words = http_probe.ask("http://127.0.0.1:9/health", None, None, 5)
    assert (status, "refused" in words) == (0, True)
    with pytest.raises(ValueError, match="not an http"):
        http_probe.ask("file:///etc/passwd", None, None, 5)


CHAT = ["usage", "completion_tokens"]


def probe(server: Server, *keys: str) -> tuple[bool, str]:
    how = {"path": "/health", "probe_path": "/v1/x", "probe_body": {"max_tokens": 1}, "answer": list(keys)}
    return asked(server, how)


def test_a_probe_returns_the_text_of_a_chat(server: Server) -> None:
    server.answer = reply("Hi there", 2)
    assert probe(server, *CHAT) == (True, "Hi there")
    assert server.asked == ("/v1/x", "Bearer sesame", {"model": "demo", "max_tokens": 1})


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_a_model_that_still_thinks_has_answered(server: Server, key: str) -> None:
    server.answer = reply(None, 8, **{key: "Well,"})
    assert probe(server, *CHAT) == (True, "Well,")


@pytest.mark.parametrize(
    ("answer", "keys", "ready"),
    [
        ({"data": [{"embedding": [0.1, 0.0]}]}, ["data", "0", "embedding"], True),
        ({"data": []}, ["data", "0", "embedding"], False),
        ([{"score": 0.5, "index": 0}], ["0"], True),  # SGLang's rerank is a list
        ({"results": [{"relevance_score": 0.0}]}, ["results", "0", "relevance_score"], True),
    ],
)
def test_a_probe_of_another_task(server: Server, answer: object, keys: list[str], ready: bool) -> None:
    server.answer = answer
    found, text = probe(server, *keys)
    assert found is ready
    assert (text == "") is ready


@pytest.mark.parametrize(
    "answer",
    [
        reply("", 0),
        {"usage": None},
        {"usage": []},
        {},
        [],
        None,
        "text",
        {"usage": {"completion_tokens": None}},
    ],
)
def test_an_answer_that_lacks_what_is_asked_for(server: Server, answer: object) -> None:
    server.answer = answer
    assert probe(server, *CHAT) == (False, "/v1/x: the answer has nothing at usage.completion_tokens")


def test_a_refused_probe_says_why(server: Server) -> None:
    server.status, server.answer = 401, {"error": "Unauthorized"}
    ready, words = probe(server, *CHAT)
    assert (ready, "401" in words, "Unauthorized" in words) == (False, True, True)
