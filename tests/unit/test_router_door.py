"""What a client may not write reaches no replica of a divided service, all else does: a real smg."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from headfirst.decide.plan.front import router_door
from headfirst.decide.plan.front.router import command, with_replicas
from serving import QuietHandler, free_port
from test_supervisor_routers import ADMIN_KEY, KEY, answers, until

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
OURS = (
    "kv_transfer_params",
    "ec_transfer_params",
    "bootstrap_host",
    "bootstrap_room",
    "disagg_prefill_dp_rank",
)


class Replica(ThreadingHTTPServer):
    """A replica that keeps what it is asked. As a prefill replica it has no KV cache to name."""

    daemon_threads = True

    def __init__(self) -> None:
        self.asked: list[str] = []
        asked = self.asked

        class Handler(QuietHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                models = {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "vllm"}]}
                self.answer(json.dumps(models if self.path == "/v1/models" else {}))

            def do_POST(self) -> None:
                asked.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
                message = {"message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
                answer = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
                answer |= {"choices": [{"index": 0, **message}]}
                if json.loads(asked[-1]).get("stream"):
                    self.answer(
                        "".join(f"data: {word}\n\n" for word in ("{}", "{}", "[DONE]")), "text/event-stream"
                    )
                else:
                    self.answer(json.dumps(answer))

            def answer(self, text: str, kind: str = "application/json") -> None:
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()


class Divided:
    """A router as it is planned, in front of a prefill and a decode replica."""

    def __init__(self) -> None:
        self.replicas, self.port = [Replica(), Replica()], free_port()
        roles = [("prefill", "kv_producer"), ("decode", "kv_consumer")]
        fields = [{"worker_type": role, "kv_connector": "NixlConnector", "kv_role": kv} for role, kv in roles]
        urls = [f"http://127.0.0.1:{replica.server_port}" for replica in self.replicas]
        run = command("127.0.0.1", self.port, free_port(), "round_robin", divided=True)
        words = f"--api-key {KEY} --control-plane-api-keys headfirst:headfirst:admin:{ADMIN_KEY}"
        self.process = subprocess.Popen(
            [sys.executable, *with_replicas(run, dict(zip(urls, fields, strict=True)))],
            env=os.environ | {"ROUTER_ARGUMENTS": words},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.url = f"http://127.0.0.1:{self.port}"
        until(lambda: answers(f"{self.url}/readiness"))

    @property
    def asked(self) -> list[str]:
        return [text for replica in self.replicas for text in replica.asked]

    def raw(self, request: bytes) -> bytes:
        """The answer to bytes, up to the end of the connection."""
        with socket.create_connection(("127.0.0.1", self.port), 10) as connection:
            connection.sendall(request)
            answer = b""
            while data := connection.recv(4096):
                answer += data
            return answer


@pytest.fixture(scope="module")
def divided() -> Iterator[Divided]:
    found = Divided()
    yield found
    found.process.kill()
    found.process.wait()
    for replica in found.replicas:
        replica.shutdown()


def post(url: str, body: str | Iterator[bytes], key: str = KEY) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    return httpx.post(f"{url}/v1/chat/completions", content=body, headers=headers, timeout=20)


@pytest.mark.parametrize("name", OURS)
def test_no_field_of_ours_reaches_a_replica(divided: Divided, name: str) -> None:
    escaped = json.dumps(CHAT)[:-1] + f', "\\u{ord(name[0]):04x}{name[1:]}": {{"remote_host": "evil"}}}}'
    nested = json.dumps(CHAT | {"vllm_xargs": {name: "evil"}})
    before = len(divided.asked)
    for body in (json.dumps(CHAT | {name: {"remote_host": "evil"}}), escaped, nested):
        for content in (body, iter([body[:9].encode(), body[9:].encode()])):
            answer = post(divided.url, content)
            assert answer.status_code == 400 and name in answer.json()["error"]["message"]
    assert len(divided.asked) == before


LARGE = '{"a": ' + "1" * 9000 + ', "bootstrap_room": 1}'


@pytest.mark.parametrize("body", ["not JSON", "[" * 9000, '{"model": "m", "model": "m"}', LARGE])
def test_what_two_parsers_could_read_otherwise_is_refused(divided: Divided, body: str) -> None:
    before = len(divided.asked)
    assert post(divided.url, body).status_code == 400
    assert len(divided.asked) == before


def test_other_requests_are_answered(divided: Divided) -> None:
    before = len(divided.asked)
    with httpx.Client(headers={"Authorization": f"bearer {KEY}"}, base_url=divided.url) as client:
        for _ in range(2):  # over one connection
            assert client.post("/v1/chat/completions", json=CHAT).json()["choices"]
        streamed = client.post("/v1/chat/completions", json=CHAT | {"stream": True})
        assert streamed.text.endswith("data: [DONE]\n\n")
        assert client.get("/v1/models").json()["data"][0]["id"] == "m"
    assert len(divided.asked) == before + 6
    assert post(divided.url, json.dumps(CHAT), "sk-of-nobody").status_code == 401
    # The supervisors register replicas with these fields.
    listed = {"url": "http://127.0.0.1:9", "api_key": KEY, "worker_type": "prefill", "bootstrap_port": 7100}
    headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
    assert httpx.post(f"{divided.url}/workers", json=listed, headers=headers).status_code < 300


@pytest.mark.parametrize(
    "lines",
    [
        [b"Content-Length: 2", b"Transfer-Encoding: chunked"],
        [b"Content-Length: 2", b"Content-Length: 30"],
        [b"Content-Length: +2"],
        [b"Content-Length: 99999999999"],
        [b"Transfer-Encoding: gzip, chunked"],
        [b"Transfer-Encoding : chunked"],
        [b"X: a\nTransfer-Encoding: chunked"],
        [b"X: a", b" Transfer-Encoding: chunked"],
        [b"Authorization: Bearer x", b"Content-Length: 2"],
    ],
)
def test_a_body_whose_end_is_not_clear_is_refused(divided: Divided, lines: list[bytes]) -> None:
    head = [b"POST /v1/chat/completions HTTP/1.1", b"Host: x", b"Authorization: Bearer " + KEY.encode()]
    answer = divided.raw(b"\r\n".join([*head, *lines, b"", b"{}GET /workers HTTP/1.1\r\n\r\n"]))
    assert answer.startswith(b"HTTP/1.1 400") and answer.count(b"HTTP/1.1 ") == 1


def test_the_body_of_a_stranger_is_not_read(divided: Divided) -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 400000000\r\n\r\n"
    assert divided.raw(head).startswith(b"HTTP/1.1 401")  # though not a byte of it was sent


@pytest.fixture
def before_nobody() -> Iterator[tuple[int, socket.socket]]:
    """The port of a door, and the socket that listens in smg's place."""
    with socket.create_server(("127.0.0.1", 0)) as door, socket.create_server(("127.0.0.1", 0)) as inner:
        served = router_door.serve(door, inner.getsockname()[1], KEY.encode(), ADMIN_KEY.encode())
        threading.Thread(target=asyncio.run, args=(served,), daemon=True).start()
        inner.settimeout(0.5)
        yield door.getsockname()[1], inner


def test_a_slow_body_is_waited_for(before_nobody: tuple[int, socket.socket]) -> None:
    """smg closes a connection that has sent no request for 30 s."""
    port, inner = before_nobody
    head = b"POST /v1/completions HTTP/1.1\r\nAuthorization: Bearer " + KEY.encode()
    with socket.create_connection(("127.0.0.1", port), 10) as client:
        client.sendall(head + b"\r\nContent-Length: 2\r\n\r\n{")
        with pytest.raises(TimeoutError):
            inner.accept()
        client.sendall(b"}")
        with inner.accept()[0] as connection:
            assert connection.recv(4096) == head + b"\r\nContent-Length: 2\r\n\r\n{}"
            connection.sendall(b"answer")
            assert client.recv(4096) == b"answer"


def test_a_stranger_who_says_nothing_is_let_go(
    before_nobody: tuple[int, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router_door, "HEAD_S", 0.1, raising=False)
    with socket.create_connection(("127.0.0.1", before_nobody[0]), 10) as client:
        client.sendall(b"GET /health HTTP/1.1\r\n")
        assert client.recv(1) == b""


def test_small_chunks_delay_nobody(divided: Divided) -> None:
    head = [b"POST /v1/chat/completions HTTP/1.1", b"Host: x", b"Authorization: Bearer " + KEY.encode()]
    large = b"1000000\r\n" + b"x" * 0x1000000 + b"\r\n"
    body = large + b"1\r\nx\r\n" * 20_000 + b"0\r\n\r\n"
    answer = divided.raw(b"\r\n".join([*head, b"Transfer-Encoding: chunked", b"", body]))  # within 10 s
    assert answer.startswith(b"HTTP/1.1 400")


def test_a_body_of_millions_of_values_is_not_read() -> None:
    """Python would take gigabytes for it, and all clients would wait."""
    router_door.check_body(json.dumps({"input": [1] * 1_000_000}).encode())
    with pytest.raises(router_door.RefusedError, match="values"):
        router_door.check_body(b'{"input": [' + b"[]," * 3_000_000 + b"1]}")


def test_texts_may_have_any_word() -> None:
    asked: dict[str, Any] = CHAT | {"messages": [{"role": "user", "content": "kv_transfer_params?"}]}
    asked["tools"] = [{"type": "function", "function": {"parameters": {"bootstrap_host": {}}}}]
    router_door.check_body(json.dumps(asked).encode())
