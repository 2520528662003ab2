"""Hubs, asked over real HTTP from a small server that speaks both hubs' interfaces."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from headfirst.common.errors import InputError, NotReadyError
from headfirst.common.untrusted import UntrustedError
from headfirst.control.checkpoints.describe import describe
from headfirst.control.checkpoints.hub import MAX_HEADER_BYTES, read_hub
from headfirst.control.checkpoints.hub_requests import Hub
from model_files import CONFIG, INDEX, SHARDS
from serving import QuietHandler, over, serving

FILES = {
    "config.json": json.dumps(CONFIG).encode(),
    "model.safetensors.index.json": json.dumps(INDEX).encode(),
    "consolidated.safetensors": b"a copy in another layout, which the index does not name",
    **SHARDS,
}


class _Hub(QuietHandler):
    requests: list[str]
    status = 0

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
    with serving(handler) as url:
        yield url, handler


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
    assert model.bf16_bytes == model.total_bytes + 1024 - 16
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


def test_an_unreachable_hub_falls_back_to_the_catalogue() -> None:
    model = describe("Qwen/QwQ-32b", "modelscope", environment={"MODELSCOPE_ENDPOINT": "http://127.0.0.1:9"})
    assert model.id == "Qwen/QwQ-32b"
    assert model.source == "catalogue"
    assert "127.0.0.1:9 cannot be reached" in str(model.note)


@pytest.mark.parametrize("status", [None, 418, 503])
def test_a_mirrors_password_is_printed_nowhere(hub: tuple[str, type[_Hub]], status: int | None) -> None:
    url, handler = hub
    handler.status = status
    mirror = url if status else "http://127.0.0.1:9"
    endpoint = mirror.replace("//", "//reader:s3cret@")
    model = describe("Qwen/QwQ-32b", "huggingface", environment={"HF_ENDPOINT": endpoint})
    assert mirror.removeprefix("http://") in str(model.note)
    assert "s3cret" not in str(model.note)


def test_what_is_described_from_a_mirror_is_quoted_without_its_password() -> None:
    with pytest.raises(UntrustedError) as raised:
        ask(answering(files={"config.json": b"{"}), "https://reader:s3cret@hub.test")
    assert "hub.test" in str(raised.value)
    assert "s3cret" not in str(raised.value)


def test_offline_asks_no_hub_and_names_the_nearest_model() -> None:
    with pytest.raises(NotReadyError, match=r"catalogue has no deepseek-ai/DeepSeek-R2") as raised:
        describe("deepseek-ai/DeepSeek-R2", "huggingface", environment={"HF_HUB_OFFLINE": "1"})
    assert "Did you mean deepseek-ai/DeepSeek-R1" in str(raised.value)
    assert "Unset HF_HUB_OFFLINE" in str(raised.value)
    assert "mirror" not in str(raised.value)
    assert raised.value.exit_code == 3


def test_unknown_source() -> None:
    with pytest.raises(InputError, match="github is not a hub"):
        describe("a/b", "github", environment={})


def answering(*answers: httpx.Response, listing: Any = None, files: dict[str, bytes] | None = None) -> Any:
    """A hub that gives these answers in their order, or one with this list and these files."""
    given = list(answers)
    kept = {**FILES, **(files or {})}

    def answer(request: httpx.Request) -> httpx.Response:
        if given:
            return given.pop(0)
        if "/api/models/" in request.url.path:
            default = {"siblings": [{"rfilename": name, "size": len(text)} for name, text in kept.items()]}
            return httpx.Response(200, json=default if listing is None else listing)
        body = kept[request.url.path.rpartition("/")[2]]
        if wanted := request.headers.get("Range"):
            begin, _, last = wanted.removeprefix("bytes=").partition("-")
            return httpx.Response(206, content=body[int(begin) : int(last) + 1])
        return httpx.Response(200, content=body)

    return httpx.MockTransport(answer)


def ask(transport: Any, endpoint: str = "https://hub.test") -> Any:
    with over(transport):
        return describe("org/demo", "huggingface", environment={"HF_ENDPOINT": endpoint})


def siblings(*names: Any) -> dict[str, Any]:
    return {"siblings": [{"rfilename": name, "size": 1} for name in names]}


@pytest.mark.parametrize(
    "listing",
    [
        siblings("config.json", "/etc/passwd"),
        siblings("config.json", "../x.safetensors"),
        siblings("config.json", "a\\b"),
        siblings("config.json", "C:/x"),
        siblings("config.json", "x\x1b[2J"),
        siblings("config.json", "Config.json"),
        siblings("config.json", "config.json"),
        siblings("config.json", "config.json/x"),
        siblings("config.json", 5),
        siblings("config.json", None),
        {"siblings": "config.json"},
        {"siblings": [{"name": "x"}]},
        {"siblings": [5]},
        {"siblings": {"a": 1}},
        {"siblings": [{"rfilename": "model.safetensors", "size": -1}]},
        {"siblings": [{"rfilename": "model.safetensors", "size": "many"}]},
        {"siblings": [{"rfilename": "model.safetensors", "size": 10**30}]},
        {"Data": None},
        {"Data": {"Files": [{"Path": "x"}]}},
        {},
    ],
)
def test_a_list_with_one_bad_entry_is_refused_as_a_whole(listing: Any) -> None:
    with pytest.raises(UntrustedError) as raised:
        ask(answering(listing=listing))
    assert "hub.test" in str(raised.value)


@pytest.mark.parametrize(
    ("weight_map", "error", "what"),
    [
        *((bad, UntrustedError, "") for bad in ({"a": "../x.safetensors"}, {"a": "/x"}, {"a": 5})),
        *((bad, UntrustedError, "") for bad in ({"a": ["x"]}, {"a": "X", "b": "x"})),
        *((none, InputError, "no weight_map") for none in (None, [], "x", {})),
    ],
)
def test_an_index_with_a_bad_name_or_without_a_map(
    weight_map: Any, error: type[Exception], what: str
) -> None:
    index = json.dumps({"weight_map": weight_map}).encode()
    with pytest.raises(error) as raised:
        ask(answering(files={"model.safetensors.index.json": index}))
    assert what in str(raised.value)


class Endless(httpx.SyncByteStream):
    """A body that does not end; `sent` is how much of it was read."""

    sent = 0

    def __iter__(self) -> Iterator[bytes]:
        while True:
            self.sent += 1 << 20
            yield bytes(1 << 20)


def test_answers_without_end_are_left() -> None:
    body = Endless()
    with pytest.raises(UntrustedError, match="larger than"):
        ask(answering(httpx.Response(200, stream=body)))
    assert body.sent < 100 << 20


def test_a_part_longer_than_asked_for() -> None:
    body = Endless()
    name = next(iter(SHARDS))
    with pytest.raises(UntrustedError, match="larger than 8 bytes"):
        ask(
            answering(
                httpx.Response(200, json=siblings("config.json", name)),
                httpx.Response(200, json=CONFIG),
                httpx.Response(206, stream=body),
            )
        )
    assert body.sent <= 2 << 20


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
def test_compressed_answers_are_refused(encoding: str) -> None:
    body = gzip.compress(bytes(50 << 20))
    with pytest.raises(UntrustedError, match="compressed"):
        stream = httpx.ByteStream(body)
        ask(answering(httpx.Response(200, stream=stream, headers={"Content-Encoding": encoding})))


def test_deep_json_and_a_redirect_away_from_tls() -> None:
    with pytest.raises(UntrustedError, match="deep"):
        ask(answering(httpx.Response(200, content=b'{"a":' * 50_000)))
    with pytest.raises(UntrustedError, match="without TLS"):
        ask(answering(redirect("http://cdn.test/config.json")))


def redirect(to: str, **more: Any) -> httpx.Response:
    return httpx.Response(302, headers={"Location": to}, **more)


def test_redirects_are_followed_a_few_times_without_their_bodies() -> None:
    body = Endless()
    assert ask(answering(redirect("https://cdn.test/api/models/org/demo", stream=body))).source == "hub"
    assert body.sent == 0
    with pytest.raises(UntrustedError, match="more than 5 times"):
        ask(answering(*[redirect("https://cdn.test/config.json") for _ in range(9)]))


HOSTILE_CONFIGS: list[dict[str, Any]] = [
    {"num_hidden_layers": 10**9},
    {"num_hidden_layers": -1},
    {"num_attention_heads": 10**6},
    {"hidden_size": 10**30},
    {"head_dim": "wide"},
    {"num_key_value_heads": [1]},
    {"n_routed_experts": "all"},
    {"q_lora_rank": {"a": 1}},
    {"num_nextn_predict_layers": 10**9},
    {"architectures": "LlamaForCausalLM"},
    {"architectures": [{"a": 1}]},
    {"architectures": ["x\x1b[2J"]},
    {"quantization_config": "fp8"},
    {"quantization_config": {"weight_block_size": 5}},
    {"quantization_config": {"weight_block_size": [1, "x"]}},
    {"torch_dtype": ["x"], "quantization_config": None, "vocab_size": True},
]


@pytest.mark.parametrize("change", HOSTILE_CONFIGS, ids=str)
def test_a_config_of_wrong_types_or_sizes(change: dict[str, Any]) -> None:
    config = json.dumps(CONFIG | change).encode()
    with pytest.raises((UntrustedError, InputError)):
        ask(answering(files={"config.json": config}))


PLAIN = json.dumps({**CONFIG, "quantization_config": None}).encode()


def whole_files_only(files: dict[str, bytes]) -> Any:
    """A hub that answers a request for a part with the whole file."""
    parts = answering(files=files)

    def answer(request: httpx.Request) -> httpx.Response:
        request.headers.pop("Range", None)
        found: httpx.Response = parts.handler(request)
        return found

    return httpx.MockTransport(answer)


def test_headers_are_read_of_every_checkpoint() -> None:
    parts = {"embedding": 64, "dense": 1048, "head": 64}
    assert ask(answering(files={"config.json": PLAIN})).bytes_by_part == parts
    # A mirror without parts serves checkpoints that are not quantised.
    model = ask(whole_files_only({"config.json": PLAIN}))
    assert (model.dtype, model.total_bytes) == ("bf16", sum(map(len, SHARDS.values())))
    assert model.bytes_by_part == {}
    with pytest.raises(NotReadyError, match="does not support range requests"):
        ask(whole_files_only({}))


def test_modelopts_file_and_modules_json_are_read() -> None:
    quantization = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    files = {
        "config.json": PLAIN,
        "hf_quant_config.json": json.dumps(quantization).encode(),
        "modules.json": b"[]",
    }
    model = ask(answering(files=files))
    assert model.quantization_name == "modelopt fp8"
    assert model.tasks == ("embedding",)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        *((size.to_bytes(8, "little") + bytes(64), "header of the shard {}") for size in (0, 1, 100_000_001)),
        *((size.to_bytes(8, "little") + bytes(64), "header of the shard {}") for size in (2**63, 2**64 - 1)),
        ((2).to_bytes(8, "little") + b"[]", "does not start with"),
    ],
)
def test_a_shard_with_a_damaged_header(content: bytes, what: str) -> None:
    name = next(iter(SHARDS))
    with pytest.raises(NotReadyError, match=what.format(name)):
        ask(answering(files={name: content}))


def test_the_headers_of_all_shards_are_limited_together() -> None:
    header = b"{" + b" " * ((20 << 20) - 2) + b"}"
    names = [f"model-{number}.safetensors" for number in range(8)]
    served: list[int] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.startswith("/api/models/"):
            return httpx.Response(200, json={"siblings": [{"rfilename": n, "size": 1 << 30} for n in names]})
        if request.url.path.endswith("config.json"):
            return httpx.Response(200, content=FILES["config.json"])
        begin, _, last = request.headers["Range"].removeprefix("bytes=").partition("-")
        content = (len(header).to_bytes(8, "little") + header)[int(begin) : int(last) + 1]
        served.append(len(content))
        return httpx.Response(206, content=content)

    refusal = pytest.raises(
        UntrustedError, match="headers of the shards have more than 67108864 bytes together"
    )
    with over(httpx.MockTransport(answer)), refusal:
        read_hub(Hub.of("huggingface", {}), "org/demo")
    assert sum(served) <= MAX_HEADER_BYTES + 8 * 8
