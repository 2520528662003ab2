"""All hosts asked at once: the node script runs for real, on this machine instead of over SSH."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from diagnosing import SGLANG
from headfirst.common.errors import NotReadyError
from headfirst.control.evidence import collect
from headfirst.control.live import clock
from headfirst.control.live.clock import Clock
from headfirst.decide.cluster.login import Become, HostAccess
from headfirst.decide.diagnose.types import NodeFacts
from headfirst.decide.engines.base import ReadinessProbe

DOCKER = """#!/bin/sh
case "$*" in
  inspect*) cat <<'END'
[{"Id": "1", "Image": "sha256:abc", "Created": "2026-01-01T10:00:00Z", "Path": "python3",
  "Args": ["--api-key", "sesame"], "RestartCount": 0, "Config": {"Image": "engine:1"},
  "State": {"Status": "running", "Running": true, "Restarting": false, "ExitCode": 0, "OOMKilled": false,
            "Error": "", "StartedAt": "2026-01-01T10:00:00Z", "FinishedAt": "0001-01-01T00:00:00Z"}}]
END
  ;;
  *--until*) ;;
  *) echo "2026-01-01T10:00:05.5Z the key is open-sesame" ;;
esac
"""


SUDO = """#!/bin/sh
while :; do
  case "$1" in
    -u) shift 2 ;;
    -*) shift ;;
    *) exec "$@" ;;
  esac
done
"""


class Channel:
    """Of a command's output: what `collect` closes when it has understood nothing."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def close(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)


class Output:
    def __init__(self, process: subprocess.Popen[bytes], stream: Any) -> None:
        self.channel = Channel(process)
        self._stream = stream

    def readline(self, size: int) -> str:
        return str(self._stream.readline(size).decode())

    def read(self, size: int) -> bytes:
        return bytes(self._stream.read(size))


class Input:
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str | bytes) -> None:
        self._stream.write(text.encode() if isinstance(text, str) else text)

    def flush(self) -> None:
        self._stream.flush()

    @property
    def channel(self) -> Input:
        return self

    def shutdown_write(self) -> None:
        self._stream.close()


class Connection:
    """Runs a command in a shell of this machine; a host's own commands come first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def exec_command(self, command: str, timeout: float) -> tuple[Input, Output, Output]:
        path = {"PATH": f"{self._folder}:/usr/bin:/bin:/usr/sbin"}
        pipe = subprocess.PIPE
        argv = ["sh", "-c", f"{(self._folder / 'profile').read_text()}{command}"]
        process = subprocess.Popen(
            argv, stdin=pipe, stdout=pipe, stderr=pipe, env=path, start_new_session=True
        )
        return Input(process.stdin), Output(process, process.stdout), Output(process, process.stderr)


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one folder a host; each answers like a host with a container of the engine."""
    for name in ("node1", "node2"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "profile").write_text("")
        command(folder, "docker", DOCKER)
        command(folder, "dmesg", "#!/bin/sh\n")
        command(folder, "sudo", SUDO)

    @contextmanager
    def ssh(access: HostAccess) -> Iterator[Connection]:
        if not (tmp_path / access.host).exists():
            raise NotReadyError("it does not answer", where=access.host)
        yield Connection(tmp_path / access.host)

    monkeypatch.setattr(clock, "ssh", ssh)
    return tmp_path


def command(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def ask(*names: str, secrets: Sequence[str] = (), become: bool = False) -> list[NodeFacts]:
    targets = [HostAccess(name, name, become=Become() if become else None) for name in names]
    return collect.collect(targets, "http://127.0.0.1:9", SGLANG, secrets)


@pytest.mark.parametrize("become", [False, True])
def test_every_rank_is_a_node_with_its_container(hosts: Path, become: bool) -> None:
    nodes = ask("node1", "node2", become=become)
    assert [(node.rank, node.host, node.problem) for node in nodes] == [
        (0, "node1", None),
        (1, "node2", None),
    ]
    for node in nodes:
        assert node.container is not None
        assert node.container.image == "engine:1"
        assert abs(node.offset) < 5
    head, worker = nodes
    assert head.health is not None and head.health.status == 0
    assert head.metrics is not None and "refused" in head.metrics.text
    assert worker.health is worker.metrics is None


def test_secrets_do_not_come_back(hosts: Path) -> None:
    (node,) = ask("node1", secrets=["open-sesame"])
    assert node.container is not None
    assert "the key is ********" in node.container.log[0].text
    assert "sesame" not in repr(node)


def test_hosts_are_asked_at_the_same_time(hosts: Path) -> None:
    # Each waits until the other one is there too.
    meet = '#!/bin/sh\ntouch "$0.here"; until [ -e {other}/dmesg.here ]; do sleep 0.05; done\n'
    command(hosts / "node1", "dmesg", meet.format(other=hosts / "node2"))
    command(hosts / "node2", "dmesg", meet.format(other=hosts / "node1"))
    gave_up = threading.Event()

    def give_up() -> None:
        gave_up.set()
        for name in ("node1", "node2"):
            (hosts / name / "dmesg.here").touch()

    limit = threading.Timer(18, give_up)
    limit.start()
    ask("node1", "node2")
    limit.cancel()
    assert not gave_up.is_set()


def test_a_host_that_does_not_answer_is_a_node_with_its_problem(hosts: Path) -> None:
    one, other = ask("node1", "gone")
    assert one.problem is None
    assert (other.rank, other.host, other.problem, other.container) == (1, "gone", "it does not answer", None)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("sudo", "#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n", "sudo"),
        ("python3", "#!/bin/sh\necho 'python3: broken' >&2\nexit 1\n", "python3: broken"),
        ("profile", "echo Welcome to this host\n", "Welcome"),
        ("docker", "#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2\nexit 1\n", "Docker daemon"),
    ],
)
def test_a_state_that_cannot_be_read(hosts: Path, name: str, text: str, says: str) -> None:
    command(hosts / "node1", name, text)
    (node,) = ask("node1", become=True)
    assert node.problem is not None
    assert says in node.problem
    assert node.container is None


def test_one_that_hangs(hosts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(self: Connection, command: str, timeout: float) -> None:
        raise TimeoutError(f"{timeout:.0f}")

    monkeypatch.setattr(Connection, "exec_command", hangs)
    (node,) = ask("node1")
    assert node.problem == f"it did not answer within {collect.TIMEOUT_S:.0f} s"


READINESS = ReadinessProbe(
    "/health", "/v1/chat/completions", {"max_tokens": 1}, ("usage", "completion_tokens")
)
PROBED = replace(SGLANG, readiness=READINESS, model="demo", api_key="open-sesame")


@pytest.mark.parametrize(
    ("health", "probe", "status", "says"),
    [
        ((200, ""), (200, '{"usage": {"completion_tokens": 1}}'), 200, ""),
        ((503, "dead"), (0, "refused"), 503, "/health dead"),
        ((200, ""), (0, "timed out"), 0, "/v1/chat/completions timed out"),
        ((200, ""), (200, '{"usage": {}}'), 0, "/v1/chat/completions has nothing at usage.completion_tokens"),
        ((200, ""), None, 200, ""),  # an engine whose health is proof enough
    ],
)
def test_health_is_what_a_probe_finds_too(
    health: tuple[int, str], probe: tuple[int, str] | None, status: int, says: str
) -> None:
    facts = {
        "engine": None,
        "kernel": [],
        "driver": {"said": [], "gpus": [], "packages": []},
        "hcas": [],
        "health": {"status": health[0], "text": health[1]},
        "metrics": None,
        "probe": probe and {"status": probe[0], "text": probe[1]},
    }
    node = collect.parse(0, "n", Clock(0.0, 0.1), facts, PROBED)
    assert node.health == (status, says)


def test_rank_0_alone_is_asked_and_its_key_is_in_no_argument(
    hosts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[str] = []
    real = Connection.exec_command

    def recorded(self: Connection, command: str, timeout: float) -> tuple[Input, Output, Output]:
        commands.append(command)
        return real(self, command, timeout)

    monkeypatch.setattr(Connection, "exec_command", recorded)
    targets = [HostAccess(name, name) for name in ("node1", "node2")]
    head, worker = collect.collect(targets, "http://127.0.0.1:9", PROBED, ["open-sesame"])
    assert worker.health is None
    assert head.health is not None and head.health.text.startswith("/health ")
    assert not any("open-sesame" in command for command in commands)
    assert sum("/v1/chat/completions" in command for command in commands) == 1
