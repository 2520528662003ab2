"""Looks at a cluster over connections that stay open, with stand-ins for SSH, Docker and the engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import docker
import httpx
import pytest
from described_container import described
from headfirst.common.errors import NotReadyError
from headfirst.control.live import watch
from headfirst.control.live.gpus import GpuUse, parsed
from headfirst.control.live.load import EngineLoad, Meter
from headfirst.control.live.status import ReplicaTarget
from headfirst.control.live.status_types import Supervision
from headfirst.control.live.supervision import unknown
from headfirst.decide import engines
from headfirst.decide.cluster.login import HostAccess
from headfirst.decide.engines.base import ReadinessProbe

METRICS = engines.get("vllm").metrics
READINESS = ReadinessProbe("/health", "/v1/chat/completions", {}, ("usage",))
TARGET = ReplicaTarget(
    "chat", 0, [HostAccess("node1", "node1")], "http://engine", READINESS, container="engine", metrics=METRICS
)


def text(generated: int, ended: int = 0, first_s: float = 0.0) -> str:
    return f"""\
vllm:num_requests_running 1.0
vllm:generation_tokens_total {generated}
vllm:e2e_request_latency_seconds_count {ended}
vllm:time_to_first_token_seconds_count {ended}
vllm:time_to_first_token_seconds_sum {first_s}
"""


def meter(*texts: str, seconds: float = 2.0) -> Meter:
    answers = iter(texts)
    now = iter(range(99))
    client = httpx.Client(
        base_url="http://engine",
        transport=httpx.MockTransport(lambda _: httpx.Response(200, text=next(answers))),
    )
    return Meter(client, METRICS, clock=lambda: next(now) * seconds)


def test_rates_are_between_two_readings() -> None:
    one = meter(text(10), text(30, ended=4, first_s=1.0))
    assert one.read() is None
    assert one.read() == EngineLoad(
        running=1,
        queued=None,
        cache_usage=None,
        generated_tokens_per_s=10.0,
        prompt_tokens_per_s=0.0,
        requests_per_s=2.0,
        first_token_s=0.25,
    )
    one = meter(text(1000), text(3), "<html>", text(5))
    assert one.read() is None
    found = one.read()
    assert found
    assert found.generated_tokens_per_s == 0.0, "the engine has started again"
    assert one.read() is None
    assert one.read() is None  # nothing to compare with


class Host:
    """A host with one container; `down` makes it silent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.down = False
        self.opened = 0
        self.state: dict[str, Any] | None = described()["State"]
        self.used = {"cpu_stats": {"cpu_usage": {"total_usage": 0}}, "memory_stats": {"usage": 3 << 20}}
        monkeypatch.setattr(watch, "ssh", self.ssh)
        monkeypatch.setattr(watch, "docker_client", self.client)
        self.smi: list[GpuUse] | Exception = []
        monkeypatch.setattr(watch, "gpus", self.gpus)
        self.kept: dict[str, Supervision] = {}
        monkeypatch.setattr(watch, "of_container", lambda _connection, name: self.kept.get(name))

    @contextmanager
    def ssh(self, access: HostAccess) -> Iterator[None]:
        if self.down:
            raise NotReadyError("no route to host", where=access.host)
        self.opened += 1
        yield None

    @contextmanager
    def client(self, access: HostAccess, connection: object) -> Iterator[Host]:
        yield self

    def gpus(self, connection: object) -> list[GpuUse]:
        if isinstance(self.smi, Exception):
            raise self.smi
        return self.smi

    @property
    def containers(self) -> Host:
        return self

    @property
    def api(self) -> Host:
        return self

    @property
    def attrs(self) -> dict[str, Any]:
        return {**described(), "State": self.state, "RestartCount": 2}

    def get(self, name: str) -> Host:
        if self.down:
            raise OSError("broken pipe")
        if self.state is None:
            raise docker.errors.NotFound(name)
        return self

    def stats(self, name: str, *, stream: bool, one_shot: bool) -> Any:
        self.used["cpu_stats"]["cpu_usage"]["total_usage"] += 10**9  # type: ignore[index]
        return self.used


def test_a_rank_and_what_it_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch)
    moments = iter([10.0, 12.0])
    monkeypatch.setattr(watch.time, "monotonic", lambda: next(moments))
    rank = watch._RankReader(TARGET, 0, TARGET.ranks[0])
    assert rank.look().cpus is None
    found = rank.look()
    assert (found.state, found.restarts, found.cpus, found.memory_bytes) == ("running", 2, 0.5, 3 << 20)
    assert host.opened == 1
    host.state = None
    assert rank.look().state == "missing"


def test_the_gpus_of_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch)
    host.smi = parsed("".join(f"{index}, GPU-{index}, 10, 80, 50, 60, 400.0\n" for index in range(4)))
    rank = watch._RankReader(replace(TARGET, devices=[["2", "3"]]), 0, TARGET.ranks[0])
    assert [gpu.index for gpu in rank.look().gpus] == [2, 3]
    host.smi = NotReadyError("nvidia-smi fails")
    row = rank.look()
    assert (row.state, row.problem, row.gpus) == ("running", "nvidia-smi fails", ())


def test_restarts_are_those_of_the_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch)
    two = replace(TARGET, ranks=[*TARGET.ranks, HostAccess("node2", "node2")], metrics=None)
    looking = watch.ReplicaWatch([two])
    assert [row.restarts for row in looking.read().ranks] == [2, 2], "without a supervisor they are Docker's"
    host.kept = {"engine": Supervision(phase="serving", for_s=1.0, restarts=5)}
    assert [row.restarts for row in looking.read().ranks] == [5, 5]
    host.kept = {"engine": unknown(NotReadyError("its state cannot be read"))}
    read = looking.read().ranks
    assert [(row.restarts, row.state) for row in read] == [(None, "running"), (None, "running")]
    host.down = True
    assert [row.restarts for row in looking.read().ranks] == [None, None]
    looking.close()


def test_a_use_of_memory_that_is_not_reported_is_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    Host(monkeypatch).used["memory_stats"] = {}
    row = watch._RankReader(TARGET, 0, TARGET.ranks[0]).look()
    assert (row.state, row.memory_bytes) == ("running", None)


def test_a_host_that_went_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch)
    rank = watch._RankReader(TARGET, 0, TARGET.ranks[0])
    assert rank.look().state == "running"
    host.down = True
    broken = rank.look()
    assert (broken.state, broken.problem) == (
        "unreachable",
        "the connection to the Docker Engine was interrupted",
    )
    assert rank.look().problem == "no route to host"
    host.down = False
    assert rank.look().state == "running"
    assert host.opened == 2


@pytest.mark.parametrize(
    "state",
    [{}, described(3)["State"], described("running\x1b")["State"], described(StartedAt="")["State"]],  # type: ignore[arg-type]
)
def test_an_engine_that_answers_nonsense(monkeypatch: pytest.MonkeyPatch, state: dict[str, Any]) -> None:
    Host(monkeypatch).state = state
    assert watch._RankReader(TARGET, 0, TARGET.ranks[0]).look().state == "unreachable"


def test_a_replica_that_does_not_answer_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = [text(1), httpx.ConnectError("refused"), text(2), text(3), "<html>"]

    @contextmanager
    def direct(access: HostAccess, url: str) -> Iterator[str]:
        yield url

    def answer(_: httpx.Request) -> httpx.Response:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return httpx.Response(200, text=found)

    real = httpx.Client
    monkeypatch.setattr(watch, "tunnel", direct)
    monkeypatch.setattr(watch.httpx, "Client", lambda **o: real(transport=httpx.MockTransport(answer), **o))
    with_watch = watch._ReplicaReader(TARGET)
    rows = [with_watch.look() for _ in range(5)]
    assert [row.problem for row in rows] == [
        None,
        "nothing answers at its port",
        None,
        None,
        "the engine gives no figures",
    ]
    assert [row.load is not None for row in rows] == [False, False, False, True, False]
