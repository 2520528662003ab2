"""Chat over real HTTP with a small server that streams as an engine does; log lines for people."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any, ClassVar

import pytest
from headfirst.common.errors import HeadfirstError, InputError, NotReadyError
from headfirst.control.live.chat import Chat, Piece, converse, parsed, print_answer
from headfirst.control.live.logs import ContainerLogLine, parse_since, print_logs, shortened
from rich.console import Console
from serving import QuietHandler, serving

KEY = "key-1"


class Engine(QuietHandler):
    """Answers `echo N` where N is the number of messages; model `broken` fails in the middle."""

    asked: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(body)
        if self.headers["Authorization"] != f"Bearer {KEY}":
            self._json(401, {"error": "Unauthorized"})
        elif body["model"] == "unknown":
            self._json(404, {"object": "error", "message": "no such model", "code": 404})
        else:
            self.send_response(200)
            self.end_headers()
            self._say({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
            self._say({"choices": [{"delta": {"reasoning_content": "hm"}}]})
            if body["model"] == "broken":
                self._say({"error": {"message": "out of memory"}})
            else:
                self._say({"choices": [{"delta": {"content": "echo "}}]})
                self._say({"choices": [{"delta": {"content": str(len(body["messages"]))}}]})
                self._say({"choices": [], "usage": {"total_tokens": 1}})
            self.wfile.write(b"data: [DONE]\n\n")

    def _say(self, event: dict[str, Any]) -> None:
        self.wfile.write(b": comment\n\ndata: " + json.dumps(event).encode() + b"\n\n")

    def _json(self, code: int, body: dict[str, Any]) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())


@pytest.fixture
def url() -> Iterator[str]:
    Engine.asked.clear()
    with serving(Engine) as url:
        yield url


def test_answers_come_in_pieces_and_are_remembered(url: str) -> None:
    parameters = parsed(["max_tokens=5", "temperature=0.0", 'stop=["a"]', "user=me"])
    with Chat(url, "tiny", KEY, system="Be short.", parameters=parameters) as chat:
        first = list(chat.ask("one"))
        second = "".join(piece.text for piece in chat.ask("two") if not piece.reasoning)
        chat.forget()
        third = "".join(piece.text for piece in chat.ask("three") if not piece.reasoning)
    assert first == [Piece("hm", True), Piece("echo ", False), Piece("2", False)]
    assert (second, third) == ("echo 4", "echo 2")
    assert [message["content"] for message in Engine.asked[1]["messages"]] == [
        "Be short.",
        "one",
        "echo 2",
        "two",
    ]
    for body in Engine.asked[:2]:
        assert (body["max_tokens"], body["temperature"], body["stop"], body["user"]) == (5, 0.0, ["a"], "me")


@pytest.mark.parametrize(
    ("model", "key", "what"),
    [
        ("tiny", "wrong", "refuses the API key"),
        ("unknown", KEY, "404: no such model"),
        ("broken", KEY, "stopped the answer: out of memory"),
    ],
)
def test_refusals_say_why(url: str, model: str, key: str, what: str) -> None:
    with Chat(url, model, key) as chat, pytest.raises(HeadfirstError, match=what):
        list(chat.ask("x"))


def test_engine_that_is_not_there() -> None:
    with Chat("http://127.0.0.1:1", "tiny", KEY) as chat, pytest.raises(NotReadyError, match="not answer"):
        list(chat.ask("x"))


def test_conversation_on_a_terminal(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = iter(["hello", "", "/new", "again", "/exit", "never"])
    monkeypatch.setattr("builtins.input", lambda *_: next(typed))
    out = io.StringIO()
    with Chat(url, "tiny", KEY) as chat:
        converse(chat, Console(file=out, width=80))
    assert out.getvalue().count("echo 1") == 2
    assert next(typed) == "never"


def test_one_answer_separates_thinking(url: str) -> None:
    out = io.StringIO()
    with Chat(url, "tiny", KEY) as chat:
        print_answer(chat, "x", Console(file=out, width=80))
    assert out.getvalue() == "hm\n\necho 1\n"


def test_since() -> None:
    now = datetime.now(timezone.utc)
    assert abs(now - timedelta(minutes=10) - parse_since("10m")) < timedelta(seconds=5)
    assert parse_since("2026-01-31T12:00+00:00") == datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
    for wrong in ("", "m", "10x", "yesterday"):
        with pytest.raises(InputError, match="is not a time"):
            parse_since(wrong)


def test_log_lines_for_people() -> None:
    lines = [
        ContainerLogLine("rank 0", "node1", "2026-01-01T00:00:00.1Z", "[bold]not markup"),
        ContainerLogLine("chat/1 rank 1", "node2", "2026-01-01T00:00:00.2Z", "\x1b[31mred\x1b[0m"),
    ]
    plain = io.StringIO()
    print_logs(lines, Console(file=plain, width=20), timestamps=True)
    assert plain.getvalue().splitlines() == [
        "[rank 0 node1] 2026-01-01T00:00:00.1Z [bold]not markup",
        "[chat/1 rank 1 node2] 2026-01-01T00:00:00.2Z red",
    ]
    coloured = io.StringIO()
    print_logs(lines, Console(file=coloured, width=80, force_terminal=True, color_system="standard"))
    assert "\x1b[36m[rank 0 node1]" in coloured.getvalue()
    assert "\x1b[35m[chat/1 rank 1 node2]" in coloured.getvalue()
    assert "\x1b[31mred" in coloured.getvalue()


@pytest.mark.parametrize("word", ["temperature", "=1", "messages=[]", "stream=false", "model=other"])
def test_a_parameter_that_is_none(word: str) -> None:
    with pytest.raises(InputError, match="--parameter"):
        parsed([word])


def test_logs_begin_after_the_warnings_of_imports_and_cut_long_lines() -> None:
    texts = [
        "/usr/lib/python3/x.py:61: FutureWarning: The pynvml package is deprecated.",
        "  import pynvml  # type: ignore[import]",
        "<frozen importlib._bootstrap_external>:1297: FutureWarning: cuda.cudart is deprecated",
        "[2026-01-01 00:00:00] server_args=" + "x" * 15_000,
        "  an indented line",
        "ValueError: page.py:12: Warning: not one of Python's",
    ]
    lines = [ContainerLogLine("rank 0", "node1", "", text) for text in texts]
    # A rank's warning and another rank's indented line may come in turn.
    other = ContainerLogLine("rank 1", "node2", "", "  of another rank")
    shown = [line.text for line in shortened([lines[0], other, *lines[1:]])]
    assert shown[0] == "  of another rank"
    assert shown[1].startswith("[2026-01-01 00:00:00] server_args=xxx")
    assert shown[1].endswith(" … 13,034 more characters: --full")
    assert shown[2:] == texts[4:]
