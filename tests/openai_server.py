"""Stands in for an engine with OpenAI's API: does all that `deploy test` looks for, or fails at one thing.

A token is a word. `faults` are names of what is broken; what they do stands where they are asked for.
"""

from __future__ import annotations

import base64
import json
import random
import re
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "sk-of-the-stand-in"
MODEL = "stand-in"
CONTEXT = 600
WORDS = [
    "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen",
]  # fmt: skip
SIZE = 8  # dimensions of an embedding


class RefusedError(Exception):
    """An answer with an error's status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass
class State:
    """What a server is, and what it has seen."""

    task: str = "chat"
    faults: frozenset[str] = frozenset()
    thinks: bool = False
    adapters: tuple[str, ...] = ()
    grammars: bool = True
    matryoshka: bool = True
    answers: dict[str, str] = field(default_factory=dict)  # to prompts that contain the key
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    hung: bool = False
    at_once: int = 0
    left: threading.Event = field(default_factory=threading.Event)  # a client left in the midst of a stream
    lock: threading.Lock = field(default_factory=threading.Lock)


@contextmanager
def serving(**options: Any) -> Iterator[tuple[str, State]]:
    """A server on 127.0.0.1: its address and its state."""
    state = State(**options)

    class Bound(Handler):
        pass

    Bound.state = state
    with Server(("127.0.0.1", 0), Bound) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", state
        finally:
            server.shutdown()
            thread.join()


class Server(ThreadingHTTPServer):
    """Many clients at once."""

    request_queue_size = 128
    daemon_threads = True
    block_on_close = False


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    state: State
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Keep the tests' output clean."""

    def do_GET(self) -> None:
        self._answer(lambda: self._get())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.state.bodies.append(body)
        self.state.headers.append(dict(self.headers))
        self._answer(lambda: self._post(body))

    def _has(self, fault: str) -> bool:
        return fault in self.state.faults

    def _answer(self, make: Any) -> None:
        try:
            if self.path.startswith("/health"):
                self._send(503 if self._has("not-ready") else 200, b"")
                return
            self._authorize()
            found = make()
            if found is not None:
                self._send(200, self._raw(found))
        except RefusedError as error:
            body = {"error": {"message": error.message, "type": "BadRequest", "code": error.status}}
            self._send(error.status, json.dumps(body).encode())

    def _raw(self, found: Any) -> bytes:
        if self._has("not-json"):
            return b"<html>"
        if self._has("wrong-types"):
            return json.dumps({"choices": "none", "data": 3, "usage": []}).encode()
        if self._has("a-list"):
            return b"[1, 2]"
        if self._has("too-large"):
            return json.dumps({**found, "padding": "x" * (17 << 20)}).encode()
        return json.dumps(found).encode()

    def _send(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        if self._has("compressed"):
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _authorize(self) -> None:
        given = self.headers["Authorization"]
        if given is None and self._has("no-key-accepted"):
            return
        if given != f"Bearer {KEY}" and not (given and self._has("any-key-accepted")):
            raise RefusedError(403 if self._has("forbidden") else 401, "Unauthorized")

    def _get(self) -> Any:
        if self.path != "/v1/models":
            raise RefusedError(404, "Not Found")
        listed = (
            [] if self._has("no-models") else [{"id": MODEL, "object": "model", "max_model_len": CONTEXT}]
        )
        listed += [{"id": name, "object": "model", "parent": MODEL} for name in self.state.adapters]
        return {"object": "list", "data": listed}

    def _post(self, body: dict[str, Any]) -> Any:
        routes = {
            "/v1/chat/completions": ({"chat", "vision"}, self._chat),
            "/v1/completions": ({"chat", "vision"}, self._completion),
            "/v1/embeddings": ({"embedding"}, self._embeddings),
            "/v1/rerank": ({"rerank"}, self._rerank),
            "/classify": ({"reward"}, self._reward),
            "/v1/classify": ({"reward"}, self._classify),
        }
        if self.path not in routes:
            raise RefusedError(404, "Not Found")
        tasks, route = routes[self.path]
        if self.state.task not in tasks and self._has("crash-on-other-task"):
            raise RefusedError(500, "Internal server error")
        if self.state.task not in tasks:
            raise RefusedError(400, f"This model is for {self.state.task}.")
        if self.state.hung:
            raise RefusedError(500, "the scheduler hangs")
        return route(body)

    # Text

    def _check(self, body: dict[str, Any], prompt: list[str]) -> None:
        """What an engine refuses."""
        if not body.get("messages") and "prompt" not in body and not self._has("empty-accepted"):
            raise RefusedError(400, "Messages cannot be empty.")
        known = (MODEL, *(f"{MODEL}:{name}" for name in self.state.adapters))
        if body["model"] not in known and not self._has("any-model"):
            name = "model" if self._has("anonymous-model") else f"model `{body['model']}`"
            raise RefusedError(404, f"The {name} does not exist.")
        if ":" in body["model"] and self._has("broken-adapter"):
            raise RefusedError(500, "no such adapter")
        if len(prompt) >= CONTEXT:
            if self._has("hangs-on-long-input"):
                self.state.hung = True
            if self._has("crashes-on-long-input"):
                raise RefusedError(500, "out of memory")
            if not self._has("long-input-cut"):
                raise RefusedError(
                    400, f"The input ({len(prompt)} tokens) is longer than the context ({CONTEXT})."
                )
            del prompt[CONTEXT - 1 :]
        if len(prompt) > CONTEXT // 2 and self._has("half-context"):
            raise RefusedError(400, "The input is too long.")
        limits = {"temperature": (0, 9), "presence_penalty": (-2, 2), "frequency_penalty": (-2, 2)}
        for name, (low, high) in limits.items():
            if not low <= body.get(name, 0) <= high and not self._has(f"ignores-{name}"):
                raise RefusedError(400, f"{name} must be in [{low}, {high}]")

    def _prompt(self, messages: list[dict[str, Any]]) -> list[str]:
        if self._has("only-last-message"):
            messages = messages[-1:]
        words = []
        for message in messages:
            if message["role"] == "system" and self._has("no-system"):
                raise RefusedError(400, "System role not supported")
            parts = message["content"]
            for part in parts if isinstance(parts, list) else [{"type": "text", "text": parts}]:
                if part["type"] == "text":
                    words += part["text"].split()
                elif self.state.task != "vision":
                    raise RefusedError(400, "Model only supports text input.")
                elif not self._has("blind"):
                    assert base64.b64decode(part["image_url"]["url"].partition(",")[2])[:4] == b"\x89PNG"
                    words += ["<patch>"] * 16
        return words

    def _text(self, body: dict[str, Any], prompt: list[str], number: int = 0) -> tuple[list[str], str]:
        """The words of an answer, and why it ends."""
        words = list(WORDS)
        if self._has("silent"):
            return [], "stop"
        hot = body.get("temperature", 1) > 0 and body.get("top_p", 1) > 0.1
        ignores = {"ignores-top_p": hot or "top_p" in body, "greedy-differs": True}
        if hot or any(self._has(fault) and when for fault, when in ignores.items()):
            seed = None if body.get("seed") is None or self._has("ignores-seed") else body["seed"] + number
            random.Random(seed).shuffle(words)
        reason = "stop"
        for stop in body.get("stop") or []:
            if stop in words and not self._has("ignores-stop"):
                words = words[: words.index(stop) + self._has("includes-stop")]
        limit = body.get("max_tokens", 16)
        if len(words) > limit and not self._has("ignores-max_tokens"):
            words, reason = words[:limit], "length"
        return words, "stop" if self._has("wrong-finish") else "length" if self._has("never-stop") else reason

    def _chat(self, body: dict[str, Any]) -> Any:
        prompt = self._prompt(body["messages"])
        self._check(body, prompt)
        self._crowd()
        if self._has("refuses-odd") and len(self.state.bodies) % 2:
            raise RefusedError(400, "an odd request")
        if body.get("stream"):
            self._stream(body, prompt)
            return None
        choices = []
        for number in range(1 if self._has("ignores-n") else body.get("n", 1)):
            words, reason = self._text(body, prompt, number)
            message: dict[str, Any] = {"role": "assistant", "content": " ".join(words)}
            if number and self._has("empty-choice"):
                message["content"] = ""
            text = self._known(body["messages"])
            if text is not None:
                words, reason = self._cut(body, text.split())
                message["content"] = text if reason == "stop" else " ".join(words)
            self._constrain(body, message)
            if self.state.thinks:
                self._think(body, message)
            choice = {"index": number, "message": message, "finish_reason": reason}
            if body.get("logprobs"):
                choice["logprobs"] = self._logprobs(words)
            choices.append(choice)
        tokens = len(words) + (10 if self._has("counts-wrong") else 0)
        return {
            "id": "1",
            "object": "chat.completion",
            "model": body["model"],
            "choices": choices,
            "usage": self._usage(prompt, tokens),
        }

    def _known(self, messages: list[dict[str, Any]]) -> str | None:
        """Of `answers`: that to the whole prompt, or to a part of it; a prompt with pictures is a list."""
        prompt = messages[-1]["content"] if messages else None
        if not isinstance(prompt, str):
            return None
        parts = (text for part, text in self.state.answers.items() if part in prompt)
        return self.state.answers.get(prompt, next(parts, None))

    def _cut(self, body: dict[str, Any], words: list[str]) -> tuple[list[str], str]:
        limit = body.get("max_tokens", CONTEXT)
        return words[:limit], "length" if len(words) > limit else "stop"

    def _usage(self, prompt: list[str], tokens: int) -> dict[str, int]:
        count = 7 if self._has("counts-no-prompt") else len(prompt)
        return {"prompt_tokens": count, "completion_tokens": tokens, "total_tokens": count + tokens}

    def _crowd(self) -> None:
        """Fails for the eighth client of a crowd."""
        with self.state.lock:
            self.state.at_once += 1
            now = self.state.at_once
        if self._has("crowd-refused"):
            time.sleep(0.5)
        with self.state.lock:
            self.state.at_once -= 1
        if self._has("crowd-refused") and now >= 8:
            raise RefusedError(503, "queue full")

    def _logprobs(self, words: list[str]) -> Any:
        if self._has("no-logprobs"):
            return None
        sign = 1 if self._has("positive-logprobs") else -1
        count = 1 if self._has("one-logprob") else 2
        own = -5.0 if self._has("unlikely-token") else sign * 0.1
        top = [{"token": word, "logprob": sign * 0.1 * (n + 1)} for n, word in enumerate(("a", "b")[:count])]
        return {"content": [{"token": word, "logprob": own, "top_logprobs": top} for word in words]}

    def _constrain(self, body: dict[str, Any], message: dict[str, Any]) -> None:
        """Grammars and tools, as SGLang spells them."""
        form = body.get("response_format")
        if (form or "regex" in body or "ebnf" in body) and not self.state.grammars:
            raise RefusedError(400, "Grammar-based generation is not supported with --grammar-backend none")
        loose = self._has("ignores-grammar")
        if form and not loose:
            message["content"] = (
                '{"name": "Oslo"}' if self._has("wrong-schema") else '{"name": "Paris", "population": 2}'
            )
        if "regex" in body and not loose:
            message["content"] = "yes-123"
        if "ebnf" in body and not loose:
            assert body["ebnf"].startswith("root ::=")
            message["content"] = "no-12"
        if body.get("tools") and self._has("refuses-tools"):
            raise RefusedError(400, "the chat template has no tools")
        if body.get("tools") and self._has("call-in-content"):
            message["content"] = '<call>get_weather(city="Paris")</call>'
        elif body.get("tools") and not self._has("no-call"):
            arguments = "{city: Paris" if self._has("broken-arguments") else '{"city": "Paris"}'
            name = "rm" if self._has("other-tool") else "get_weather"
            call = {"id": "call-1", "type": "function", "function": {"name": name, "arguments": arguments}}
            message |= {"content": None, "tool_calls": [call]}

    def _think(self, body: dict[str, Any], message: dict[str, Any]) -> None:
        if self._has("inline-thinking"):
            message["content"] = f"<think>hm</think> {message['content']}"
        elif not self._has("thinks-never") and (
            not self._has("thinks-on-demand") or body.get("chat_template_kwargs", {}).get("thinking")
        ):
            message["reasoning_content"] = "hm"

    def _stream(self, body: dict[str, Any], prompt: list[str]) -> None:
        words, reason = self._text({**body, "max_tokens": 10**6}, prompt)
        words *= body["max_tokens"] // len(words) if words else 0
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        pieces = [" ".join(words)] if self._has("one-piece") else [f"{word} " for word in words]
        self.state.hung = self._has("hangs-on-abort")
        try:
            for piece in pieces:
                self._event({"choices": [{"index": 0, "delta": {"content": piece}}]})
                time.sleep(0.005 if len(pieces) > 100 else 0)
            if self._has("breaks-off"):
                self._event({"error": {"message": "out of memory"}})
                return
            if not self._has("no-finish"):
                self._event({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
            if not self._has("no-usage"):
                self._event({"choices": [], "usage": self._usage(prompt, len(words))})
            self.wfile.write(b"data: {]\n\n" if self._has("broken-event") else b"data: [DONE]\n\n")
            self.state.hung = False
        except OSError:
            self.state.left.set()
        self.close_connection = True

    def _event(self, event: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")

    def _completion(self, body: dict[str, Any]) -> Any:
        prompt = body["prompt"].split()
        self._check(body, prompt)
        words, reason = self._text(body, prompt)
        choices = [{"index": 0, "text": " ".join(words), "finish_reason": reason}]
        return {"object": "text_completion", "choices": choices, "usage": self._usage(prompt, len(words))}

    # Vectors and scores

    def _vector(self, text: str, place: int) -> list[float]:
        if self._has("zero-vector"):
            return [0.0] * SIZE
        if self._has("nan-vector"):
            return [float("nan")] * SIZE
        if self._has("one-vector"):
            text = ""
        seed = f"{text}{place if self._has('place-matters') else ''}"
        return [random.Random(seed + str(n)).uniform(-1, 1) for n in range(SIZE)]

    def _embeddings(self, body: dict[str, Any]) -> Any:
        texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
        size = SIZE
        if "dimensions" in body:
            if not self.state.matryoshka:
                raise RefusedError(400, "This model does not support matryoshka representation.")
            size = SIZE if self._has("ignores-dimensions") else body["dimensions"]
        data = []
        for place, text in enumerate(texts[:-1] if self._has("loses-text") and len(texts) > 1 else texts):
            vector: Any = self._vector(text, place)[:size]
            if body.get("encoding_format") == "base64" and not self._has("never-base64"):
                shift = 1.0 if self._has("other-base64") else 0.0
                packed = struct.pack(f"<{size}f", *(number + shift * n for n, number in enumerate(vector)))
                vector = "%%%" if self._has("no-base64") else base64.b64encode(packed).decode()
            data.append({"object": "embedding", "index": place, "embedding": vector})
        return {
            "object": "list",
            "data": data,
            "model": MODEL,
            "usage": {"prompt_tokens": 1, "total_tokens": 1},
        }

    def _rerank(self, body: dict[str, Any]) -> Any:
        words = set(re.findall(r"\w+", body["query"].lower()))
        rows = []
        for index, text in enumerate(body["documents"]):
            alike = len(words & set(re.findall(r"\w+", text.lower())))
            rows.append({"index": index, "score": float(-alike if self._has("wrong-order") else alike)})
        if self._has("loses-document"):
            rows.pop()
        if self._has("no-index"):
            del rows[0]["index"]
        if self._has("no-score"):
            rows[0]["score"] = None
        return {"rows": 1} if self._has("no-rows") else sorted(rows, key=lambda row: -(row["score"] or 0))

    def _reward(self, body: dict[str, Any]) -> Any:
        scores = [1.5 if self._has("one-score") else float(len(text)) for text in body["text"]]
        if self._has("loses-score"):
            scores.pop()
        return [{"embedding": [0.5, score]} for score in scores]

    def _classify(self, body: dict[str, Any]) -> Any:
        if self._has("no-classes"):
            raise RefusedError(400, "The model does not support classification.")
        share = 0.9 if self._has("more-than-one") else 0.25
        data = [{"index": n, "label": "good", "probs": [0.75, share]} for n in range(len(body["input"]))]
        return {"object": "list", "data": data[1:] if self._has("loses-label") else data}
