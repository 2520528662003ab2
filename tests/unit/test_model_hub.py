"""Hubs, asked over real HTTP from a small server that speaks both hubs' interfaces."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest
from headfirst.errors import InputError, NotReadyError
from headfirst.model import describe
from model_files import CONFIG, INDEX, SHARDS

FILES = {
    "config.json": json.dumps(CONFIG).encode(),
    "model.safetensors.index.json": json.dumps(INDEX).encode(),
    "consolidated.safetensors": b"a copy in another layout, which the index does not name",
    **SHARDS,
}


class _Hub(BaseHTTPRequestHandler):
    requests: list[str]
    status = 0

    def log_message(self, *arguments: object) -> None:
        """Keep the test's output quiet."""

    def do_GET(self) -> None:
        self.requests.append(self.path)
        path, query = urlsplit(self.path).path, parse_qs(urlsplit(self.path).query)
        if self.status:
            self._answer(b"no", self.status)
        elif path == "/api/models/org/demo/revision/main":
            siblings = [{"rfilename": name, "size": len(text)} for name, text in FILES.items()]
            self._answer(json.dumps({"siblings": siblings}).encode())
        elif path == "/api/v1/models/org/demo/repo/files":
            files = [{"Path": name, "Size": len(text), "Type": "blob"} for name, text in FILES.items()]
            self._answer(json.dumps({"Data": {"Files": files}}).encode())
        elif path == "/api/v1/models/org/demo/repo":
            self._answer(FILES[query["FilePath"][0]])
        elif path.startswith("/org/demo/resolve/main/"):
            self._answer(FILES[path.rpartition("/")[2]])
        else:
            self._answer(b"no", 404)

    def _answer(self, body: bytes, status: int = 200) -> None:
        if wanted := self.headers.get("Range"):
            begin, _, last = wanted.removeprefix("bytes=").partition("-")
            body, status = body[int(begin) : int(last) + 1], 206
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def hub() -> Iterator[tuple[str, type[_Hub]]]:
    handler = type("Hub", (_Hub,), {"requests": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", handler
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("source", "variable"), [("huggingface", "HF_ENDPOINT"), ("modelscope", "MODELSCOPE_ENDPOINT")]
)
def test_a_hub_model_is_described_without_its_weights(
    hub: tuple[str, type[_Hub]], source: str, variable: str
) -> None:
    url, handler = hub
    model = describe("org/demo", source, environment={variable: url})
    assert model.source == "hub"
    assert model.dtype == "fp8"
    assert [shard.name for shard in model.shards] == sorted(SHARDS)
    assert model.total_bytes == sum(map(len, SHARDS.values()))
    assert model.bytes_by_dtype == {"BF16": 128, "F8_E4M3": 1024, "F32": 24}
    assert model.scale_bytes == 16
    assert model.note is None
    assert len([path for path in handler.requests if ".safetensors" in path and "index" not in path]) == 4


def test_unknown_model_is_the_users_error(hub: tuple[str, type[_Hub]]) -> None:
    with pytest.raises(InputError, match="has no org/other at revision main"):
        describe("org/other", "huggingface", environment={"HF_ENDPOINT": hub[0]})


def test_gated_model_asks_for_a_token(hub: tuple[str, type[_Hub]]) -> None:
    url, handler = hub
    handler.status = 401
    with pytest.raises(InputError, match="HTTP 401") as raised:
        describe("meta-llama/Llama-3.1-405B", "huggingface", environment={"HF_ENDPOINT": url})
    assert "HF_TOKEN" in str(raised.value)


@pytest.mark.parametrize("status", [500, 503])
def test_a_failing_hub_falls_back_to_the_catalogue_and_says_so(
    hub: tuple[str, type[_Hub]], status: int
) -> None:
    url, handler = hub
    handler.status = status
    model = describe("deepseek-ai/DeepSeek-R1", "huggingface", environment={"HF_ENDPOINT": url})
    assert model.source == "catalogue"
    assert model.note is not None
    assert f"HTTP {status}" in model.note
    assert "catalogue" in model.note


def test_an_unreachable_hub_falls_back_to_the_catalogue() -> None:
    model = describe("Qwen/QwQ-32b", "modelscope", environment={"MODELSCOPE_ENDPOINT": "http://127.0.0.1:9"})
    assert model.id == "Qwen/QwQ-32b"
    assert model.source == "catalogue"
    assert "127.0.0.1:9 cannot be reached" in str(model.note)


def test_offline_asks_no_hub_and_names_the_nearest_model() -> None:
    with pytest.raises(NotReadyError, match=r"catalogue has no deepseek-ai/DeepSeek-R2") as raised:
        describe("deepseek-ai/DeepSeek-R2", "huggingface", environment={"HF_HUB_OFFLINE": "1"})
    assert "Did you mean deepseek-ai/DeepSeek-R1" in str(raised.value)
    assert raised.value.exit_code == 3


def test_unknown_source() -> None:
    with pytest.raises(InputError, match="Unknown model_source 'github'"):
        describe("a/b", "github", environment={})
