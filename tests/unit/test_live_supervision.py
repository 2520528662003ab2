"""What `deploy status` and `top` make of the state that a supervisor writes, or of none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from headfirst.common.errors import NotReadyError
from headfirst.control.live import status, supervision
from headfirst.control.live.ssh_access.ssh import CommandOutput
from headfirst.control.live.status import ReplicaTarget
from headfirst.control.live.status_types import EngineStatus, RankStatus, Supervision
from headfirst.decide.cluster.login import HostAccess
from headfirst.decide.engines.base import ReadinessProbe

STATE = {
    "uptime": 1000.0,
    "replicas": {
        "engine": {
            "phase": "serving", "text": "", "since": 940.0, "restarts": 5, "last_reason": "rank 1 died",
            "start_seconds": 40.0, "generation": 2, "routers": [],
        }
    },
}  # fmt: skip
TARGET = ReplicaTarget(
    "chat",
    0,
    [HostAccess("node1", "node1")],
    "http://engine",
    ReadinessProbe("/", "/", {}, ()),
    container="engine",
)


def answer(text: object, uptime: str = "1001.20 4000.00", code: int = 0, error: str = "") -> CommandOutput:
    return CommandOutput(code, f"{uptime}\n{text if isinstance(text, str) else json.dumps(text)}", error)


READ = Supervision(phase="serving", for_s=60.0, restarts=5, last_reason="rank 1 died", start_seconds=40.0)
ANSWERS: list[tuple[CommandOutput, Supervision | None]] = [
    (answer(STATE), READ),
    (answer("", code=1, error="cat: /run/headfirst/supervisor.json: No such file or directory"), None),
    (answer({**STATE, "replicas": {}}), None),
    (
        answer("", code=1, error="cat: /run/headfirst/supervisor.json: Permission denied"),
        Supervision(
            phase="unknown",
            text="the state of the supervisor cannot be read: "
            "cat: /run/headfirst/supervisor.json: Permission denied",
        ),
    ),
    (
        answer(STATE, "1300.00 9.0"),
        Supervision(phase="unknown", text="the supervisor has been silent for 300 s"),
    ),
    (
        answer("["),
        Supervision(
            phase="unknown",
            text="the state of the supervisor is not JSON: Expecting value: line 1 column 2 (char 1)",
        ),
    ),
    (answer(STATE, "soon"), Supervision(phase="unknown", text="the state of the supervisor is not valid")),
    (
        answer({"uptime": "soon", "replicas": {}}),
        Supervision(phase="unknown", text="the state of the supervisor is not valid"),
    ),
]


@pytest.mark.parametrize(("read", "expected"), ANSWERS)
def test_a_state_that_cannot_be_read_is_unknown(
    monkeypatch: pytest.MonkeyPatch, read: CommandOutput, expected: Supervision | None
) -> None:
    monkeypatch.setattr(supervision, "run", lambda _client, _command: read)
    assert supervision.of_container(None, "engine") == expected  # type: ignore[arg-type]


@contextmanager
def connected(_access: HostAccess) -> Iterator[None]:
    yield


def ranks(
    monkeypatch: pytest.MonkeyPatch, ssh: Any, read: CommandOutput
) -> tuple[Supervision | None, int | None]:
    """The supervisor of a replica and the restarts of its rank, where Docker has counted none."""
    monkeypatch.setattr(status, "ssh", ssh)
    monkeypatch.setattr(supervision, "run", lambda _client, _command: read)
    row = RankStatus(rank=0, host="node1", state="running", restarts=0)
    kept = status._supervision(TARGET)
    replica = status._replica(TARGET, [row], EngineStatus(url="http://engine", ready=True), kept)
    assert json.loads(replica.model_dump_json())["ranks"][0]["restarts"] == replica.ranks[0].restarts
    return replica.supervisor, replica.ranks[0].restarts


def test_the_restarts_of_a_rank_are_those_of_its_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ranks(monkeypatch, connected, ANSWERS[0][0]) == (READ, 5)
    assert ranks(monkeypatch, connected, ANSWERS[1][0]) == (None, 0)
    assert ranks(monkeypatch, connected, ANSWERS[3][0]) == (ANSWERS[3][1], None)


def test_a_head_that_does_not_answer_is_not_one_without_a_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def refused(access: HostAccess) -> Iterator[None]:
        raise NotReadyError("no route to host", where=access.host)
        yield

    kept, restarts = ranks(monkeypatch, refused, ANSWERS[0][0])
    assert kept == Supervision(phase="unknown", text="no route to host")
    assert restarts is None
