"""Answers of a compromised node over SSH: a diagnosis and a model folder take what their format allows."""

from __future__ import annotations

import base64
import contextlib
import copy
import io
import json
import subprocess
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from ansible_collections.headfirst.serving.plugins.plugin_utils.failure_causes import Line
from described_container import described
from diagnosing import SGLANG
from headfirst.common.untrusted import UntrustedError
from headfirst.control.deployment.hosts import head_folder
from headfirst.control.deployment.verbs import check as checking
from headfirst.control.evidence import collect, node_answer
from headfirst.control.live import chat, clock, logs, status
from headfirst.control.live.clock import Clock, measure
from headfirst.control.live.ssh_access import ssh as live_ssh
from headfirst.control.live.ssh_access import tunnel
from headfirst.control.live.ssh_access.ssh import CommandOutput
from headfirst.decide.cluster.login import HostAccess
from headfirst.decide.diagnose.tuning import read_live
from headfirst.decide.engines.sglang.tuning import read_past
from model_files import CONFIG, INDEX, SHARDS
from together import together

NODE = HostAccess("node1", "node1")
GOOD: dict[str, Any] = {
    "engine": {
        "inspected": described("exited", ExitCode=1, FinishedAt="2026-01-01T10:05:00Z"),
        "log": ["2026-01-01T10:00:01.5Z hello"],
        "earlier": [],
    },
    "kernel": [[1.5, "NVRM: x"]],
    "driver": {
        "said": ["x"],
        "gpus": [
            {
                "index": "0",
                "driver_version": "570",
                "memory.used": "1",
                "utilization.gpu": "0",
                "utilization.memory": "0",
            }
        ],
        "packages": [],
    },
    "hcas": ["mlx5_0"],
    "health": {"status": 200, "text": ""},
    "metrics": None,
    "probe": None,
}


def packed(value: Any) -> bytes:
    return base64.b64encode(zlib.compress(json.dumps(value).encode()))


def test_a_good_answer() -> None:
    node = collect.parse(0, "node1", Clock(0.0, 0.1), node_answer.decode(packed(GOOD), where="node1"), SGLANG)
    assert node.container is not None
    assert node.container.log[0].text == "hello"
    assert node.gpus[0]["index"] == "0"
    assert node.kernel[0].at == 1.5


def test_a_small_answer_that_inflates_to_much_costs_little_memory() -> None:
    bomb = base64.b64encode(zlib.compress(b" " * (300 << 20)))
    assert len(bomb) < 500_000
    tracemalloc.start()
    with pytest.raises(UntrustedError, match="larger than") as raised:
        node_answer.decode(bomb, where="node1")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert raised.value.where == "node1"
    assert peak < 3 * node_answer.MAX_ANSWER


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (base64.b64encode(zlib.compress(b"[" * 100_000)), "nested more than 8 deep"),
        (base64.b64encode(zlib.compress(b"{}")[:-2]), "cut off"),
        (base64.b64encode(b"hello"), "not zlib"),
        (base64.b64encode(zlib.compress(b'{"a": 1, "a": 2}')), "name twice"),
    ],
    ids=["deep", "cut", "plain", "twice"],
)
def test_answers_that_are_refused_as_a_whole(sent: bytes, words: str) -> None:
    with pytest.raises(UntrustedError, match=words):
        node_answer.decode(sent, where="node1")


Change = Callable[[dict[str, Any]], Any]
BAD: dict[str, Change] = {
    "engine as text": lambda a: a.update(engine="x"),
    "engine as a list": lambda a: a.update(engine=[1]),
    "id": lambda a: a["engine"]["inspected"].update(Id=5),
    "id of two lines": lambda a: a["engine"]["inspected"].update(Id="a\nb"),
    "argv": lambda a: a["engine"]["inspected"].update(Args="python3"),
    "argument": lambda a: a["engine"]["inspected"].update(Args=[1]),
    "long argv": lambda a: a["engine"]["inspected"].update(Args=["x"] * 5000),
    "time": lambda a: a["engine"]["inspected"]["State"].update(StartedAt="yesterday"),
    "time that is none": lambda a: a["engine"]["inspected"]["State"].update(StartedAt="2026-99-99T10:00:00Z"),
    "time of the log": lambda a: a["engine"].update(log=["yesterday hello"]),
    "line of the log": lambda a: a["engine"].update(log=[7]),
    "long line": lambda a: a["engine"].update(log=["2026-01-01T10:00:01Z " + "x" * 5000]),
    "many lines": lambda a: a["engine"].update(log=a["engine"]["log"] * 50_000),
    "log as text": lambda a: a["engine"].update(log="hello"),
    "exit code": lambda a: a["engine"]["inspected"]["State"].update(ExitCode="1"),
    "huge exit code": lambda a: a["engine"]["inspected"]["State"].update(ExitCode=10**4000),
    "state": lambda a: a["engine"]["inspected"]["State"].update(Status=["running"]),
    "kernel": lambda a: a.update(kernel=[["now", "x"]]),
    "kernel's time": lambda a: a.update(kernel=[[1e300, "x"]]),
    "kernel's pair": lambda a: a.update(kernel=[[1.0]]),
    "gpus": lambda a: a["driver"].update(gpus=[{"index": ["0"]}]),
    "gpu": lambda a: a["driver"].update(gpus=["x"]),
    "said": lambda a: a["driver"].update(said=[["x"]]),
    "hcas": lambda a: a.update(hcas=[{"a": 1}]),
    "health": lambda a: a.update(health={"status": "200", "text": ""}),
    "metrics": lambda a: a.update(metrics={"status": 200, "text": 5}),
    "metrics as a list": lambda a: a.update(metrics=[200]),
    "nothing": lambda a: a.clear(),
}


@together("change", BAD.values())
def test_an_answer_of_wrong_types_names_its_node(change: Change) -> None:
    hostile = copy.deepcopy(GOOD)
    change(hostile)
    with pytest.raises(UntrustedError, match="the answer of the node is refused") as raised:
        collect.parse(0, "node1", Clock(0.0, 0.1), hostile, SGLANG)
    assert raised.value.where == "node1"
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize("answer", [None, [], "x", 5])
def test_an_answer_that_is_no_object(answer: Any) -> None:
    with pytest.raises(UntrustedError):
        collect.parse(0, "node1", Clock(0.0, 0.1), answer, SGLANG)


def test_no_text_of_a_node_controls_a_terminal() -> None:
    hostile = copy.deepcopy(GOOD)
    evil = "\x1b]52;c;cm0=\x07\x9b2J"
    hostile["engine"]["log"] = [f"2026-01-01T10:00:01Z a{evil}b"]
    hostile["engine"]["inspected"]["State"]["Error"] = hostile["driver"]["said"][0] = hostile["health"][
        "text"
    ] = evil
    node = collect.parse(0, "node1", Clock(0.0, 0.1), hostile, SGLANG)
    for char in ("\x1b", "\x07", "\x9b"):
        assert char not in repr(node).encode().decode("unicode_escape")


class Connection:
    """Answers any command with these bytes; `asked` are the sizes that were read."""

    def __init__(self, out: bytes, err: bytes = b"") -> None:
        self.out, self.err = Stream(out), Stream(err)

    def exec_command(self, _command: str, timeout: float) -> tuple[Stream, Stream, Stream]:
        assert timeout
        return Stream(), self.out, self.err


class Stream(io.BytesIO):
    @property
    def channel(self) -> Any:
        return self

    @property
    def status_event(self) -> threading.Event:
        event = threading.Event()
        event.set()
        return event

    def recv_exit_status(self) -> int:
        return 0

    def write(self, data: Any) -> int:
        return super().write(data.encode() if isinstance(data, str) else data)

    def shutdown_write(self) -> None:
        """A command's input ends."""


def test_a_node_that_answers_wrongly_is_a_node_with_its_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def ssh(_access: HostAccess) -> Iterator[Connection]:
        yield Connection(packed({"engine": "x"}))

    monkeypatch.setattr(clock, "ssh", ssh)
    monkeypatch.setattr(clock, "measure", lambda *_: Clock(0.0, 0.1))
    (node,) = collect.collect([NODE], "http://127.0.0.1:9", SGLANG)
    assert "refused" in str(node.problem)
    monkeypatch.setattr(node_answer, "MAX_SENT", 9)
    (node,) = collect.collect([NODE], "http://127.0.0.1:9", SGLANG)
    assert "larger than 9 bytes" in str(node.problem)


@pytest.mark.parametrize("told", ["nan", "inf", "-1", "1e300", "x", ""])
def test_a_clock_that_is_none(told: str) -> None:
    with pytest.raises(ValueError if told else EOFError):
        measure(io.BytesIO(), io.BytesIO(f"{told}\n".encode() * 9 if told else b""))


def test_figures_that_are_no_numbers() -> None:
    text = "sglang:num_running_reqs 1\nsglang:token_usage e\nsglang:gen_throughput 1.2.3\n"
    live = read_live(text, SGLANG.metrics)
    assert live is not None
    assert (live.running, live.token_usage, live.gen_throughput) == (1.0, 0.0, 0.0)
    line = "Decode batch. #running-req: 1, #token: 2, token usage: .....5, #queue-req: 0"
    assert read_past([[Line(1.0, line)]]).reports == 0


def test_an_answer_to_a_command_has_a_limit() -> None:
    assert live_ssh.run(Connection(b"x" * 10), "true", limit=10).out == "x" * 10  # type: ignore[arg-type]
    with pytest.raises(UntrustedError, match="larger than 9 bytes"):
        live_ssh.run(Connection(b"x" * 10), "true", limit=9)  # type: ignore[arg-type]
    errors = Connection(b"", b"e" * (10 * live_ssh.ERROR_BYTES))
    assert len(live_ssh.run(errors, "true").err) == live_ssh.ERROR_BYTES  # type: ignore[arg-type]


def folder_of(files: Any) -> str:
    if isinstance(files, dict):
        files = {
            name: [len(data), base64.b64encode(data).decode()] if isinstance(data, bytes) else data
            for name, data in files.items()
        }
    return files if isinstance(files, str) else json.dumps(files)


FILES = {
    "config.json": json.dumps(CONFIG).encode(),
    "model.safetensors.index.json": json.dumps(INDEX).encode(),
    **SHARDS,
}


@pytest.fixture
def describe(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Any], Any]:
    """Describes a folder of a head that sends these files; the controller's folder is empty before."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    @contextlib.contextmanager
    def ssh(_access: HostAccess) -> Iterator[None]:
        yield None

    def describe(files: Any) -> Any:
        monkeypatch.setattr(head_folder, "ssh", ssh)
        answer = CommandOutput(0, folder_of(files), "")
        monkeypatch.setattr(head_folder, "run_privileged", lambda *_, **_limits: answer)
        return head_folder.describe_on_head(NODE, "/data/model")

    return describe


def test_a_folder_on_the_head(describe: Callable[[Any], Any], tmp_path: Path) -> None:
    found = describe(FILES)
    assert found.architecture == "DeepseekV3ForCausalLM"
    assert [shard.name for shard in found.shards] == sorted(SHARDS)
    assert list(tmp_path.iterdir()) == []


def test_the_small_files_are_those_that_engines_read(
    describe: Callable[[Any], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {"config.json", "modeling_own.py", "tokenizer.model", "merges.txt", "chat_template.jinja"}
    others = {"README.md", "pytorch_model.bin", ".hidden.json", "headfirst-manifest.json"}
    for name in small | others:
        (tmp_path / name).write_bytes(b"{}")
    (tmp_path / "model.safetensors").write_bytes(SHARDS["model-00001-of-00002.safetensors"])
    describe(FILES)

    def run(_access: object, _connection: object, *words: str, **_limits: object) -> CommandOutput:
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        return CommandOutput(0, done.stdout, "")

    monkeypatch.setattr(head_folder, "run_privileged", run)
    assert head_folder.files_on_head(NODE, str(tmp_path)) == dict.fromkeys(small, b"{}")


@pytest.mark.parametrize(
    "name",
    [
        "{tmp}/outside.safetensors",
        "../outside.safetensors",
        "a/../../outside.safetensors",
        "a/b.safetensors",
        "..\\outside.safetensors",
        "outside\x00.safetensors",
        "outside\n.safetensors",
        "MODEL-00001-of-00002.safetensors",
        "authorized_keys",
        "",
        ".",
        "x" * 300 + ".safetensors",
    ],
)
def test_names_that_would_leave_the_folder(describe: Callable[[Any], Any], tmp_path: Path, name: str) -> None:
    name = name.replace("{tmp}", str(tmp_path))
    with pytest.raises(UntrustedError) as raised:
        describe({**FILES, name: b"x"})
    assert raised.value.where == "node1"
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize(
    "files",
    [
        "{",
        "[]",
        "5",
        "[" * 100_000,
        '{"config.json": [1, ["x"]]}',
        '{"config.json": 5}',
        '{"config.json": [1]}',
        '{"config.json": [-1, ""]}',
        '{"config.json": [true, ""]}',
        '{"config.json": [1e3, "eA=="]}',
        '{"model.safetensors": [9223372036854775807, "eA=="]}',
        '{"config.json": [4, "not base64"]}',
        '{"config.json": [4, "éé=="]}',
        '{"config.json": [0, "eA=="]}',
        '{"config.json": [1, "eA=="], "config.json": [1, "eA=="]}',
    ],
)
def test_lists_of_files_that_are_none(describe: Callable[[Any], Any], tmp_path: Path, files: str) -> None:
    with pytest.raises(UntrustedError) as raised:
        describe(files)
    assert raised.value.where == "node1"
    assert list(tmp_path.rglob("*")) == []


class Docker:
    """The SDK's client of an engine that describes any container like this."""

    def __init__(self, attrs: Any) -> None:
        self.containers = self
        self.attrs = attrs

    def get(self, _name: str) -> Docker:
        return self


CONTAINER = described()


@pytest.mark.parametrize(
    "attrs",
    [
        *(None, [], {}, CONTAINER | {"State": "x"}, CONTAINER | {"Args": 5}),
        CONTAINER | {"RestartCount": "a"},
        described(StartedAt="2026-99-99T10:00:00Z"),
    ],
)
def test_a_container_as_no_engine_describes_it(attrs: Any) -> None:
    assert status.container_fields(Docker(CONTAINER), "node1", "x")["state"] == "running"  # type: ignore[arg-type]
    with pytest.raises(UntrustedError) as raised:
        status.container_fields(Docker(attrs), "node1", "x")  # type: ignore[arg-type]
    assert raised.value.where == "node1"


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"data": 5}', b'{"data": [{"id": 5}]}', b"[" * 99_999])
def test_a_list_of_models_that_is_none(body: bytes) -> None:
    with pytest.raises(UntrustedError):
        status._models(body)


def test_answers_of_an_engine_have_a_limit() -> None:
    endless = httpx.MockTransport(lambda _request: httpx.Response(200, content=bytes(2 << 20)))
    with (
        httpx.Client(base_url="http://x", transport=endless) as client,
        pytest.raises(UntrustedError, match="larger than"),
    ):
        tunnel.ask(client, "GET", "/v1/models")


def test_a_line_of_an_answer_has_a_limit() -> None:
    assert list(chat._lines([b"a\r\nb", b"c\n", b"d"])) == ["a", "bc", "d"]
    with pytest.raises(UntrustedError, match="larger than"):
        list(chat._lines([bytes(1 << 19)] * 9))


@pytest.mark.parametrize(
    "event", ["5", "[]", '{"choices": 5}', '{"choices": [5]}', '{"choices": [{"delta": 7}]}', "{"]
)
def test_a_part_of_an_answer_that_is_none(event: str) -> None:
    with pytest.raises(UntrustedError):
        list(chat._pieces(iter([f"data: {event}"])))


def test_a_log_line_without_end_keeps_its_start() -> None:
    (line,) = logs._split([b"2026 " + b"x" * 50_000] * 40)
    assert len(line) <= 1 << 16
    assert line.startswith("2026 x")


@pytest.mark.parametrize("told", [5, "x", [], {}, {"hosts": "x"}])
def test_a_report_of_the_communication_that_is_none(told: Any) -> None:
    with pytest.raises(UntrustedError):
        checking._report(told, [])
