"""One damaged record, or one replica whose supervision fails, ends nothing of the others."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from headfirst.node.supervisor import daemon, records
from headfirst.node.supervisor.containers import Rank
from headfirst.node.supervisor.daemon import Daemon, Settings
from headfirst.node.supervisor.events import Events
from headfirst.node.supervisor.memory import Memories
from headfirst.node.supervisor.messages import Seen

OWN = "127.0.0.1"


def record(name: str, **changes: Any) -> None:
    """The record of the generation g1 of a replica of this host."""
    supervision = {"ranks": [OWN], "hang_seconds": 60, "start_seconds": 60}
    document = {
        "worked_at": 1.0,
        "url": "http://127.0.0.1:9",
        "model": "demo",
        "api_key": "",
        "readiness": {"path": "/health", "probe_path": "/v1", "probe_body": {}, "answer": []},
        "supervision": supervision,
    }
    path = records.CONFIG / name / "g1.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({**document, **changes}))


class FakeContainers:
    """The Docker Engine of a node with two replicas of one rank each."""

    def __init__(self) -> None:
        self.names = ["bad", "good"]
        self.stopped: list[str] = []
        self.refuses_to_stop = False

    def ranks(self) -> list[Rank]:
        return [Rank(name, 0, "g1", True, f"{name}@1", "") for name in self.names]

    def rank(self, name: str) -> Rank | None:
        return next((rank for rank in self.ranks() if rank.name == name), None)

    def stop(self, name: str) -> None:
        self.stopped.append(name)
        if self.refuses_to_stop:
            raise OSError("Docker does not answer")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Daemon:
    """The daemon of a host; nothing listens, and the engines do not answer."""
    monkeypatch.setattr(records, "CONFIG", tmp_path / "etc")
    monkeypatch.setattr(records.read, "__defaults__", (tmp_path / "etc",))
    monkeypatch.setattr(daemon, "Containers", FakeContainers)
    monkeypatch.setattr(daemon, "Events", lambda: Events(tmp_path / "events.jsonl"))
    monkeypatch.setattr(daemon, "Memories", lambda: Memories(tmp_path / "memory", tmp_path / "run"))
    monkeypatch.setattr(daemon, "STATE", tmp_path / "state.json")
    monkeypatch.setattr(daemon, "_STEP_S", 0.01)
    return Daemon(Settings(address=OWN, port=0, members=[OWN], keys={}, token="a-token", sha1=""))


def events(folder: Path, kind: str) -> list[dict[str, Any]]:
    file = folder / "events.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return [found for found in map(json.loads, lines) if found["kind"] == kind]


def wait(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def end(host: Daemon) -> None:
    for kept in host._kept.values():
        kept.end()


def test_a_damaged_record_ends_no_supervision(
    host: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever reading a record raises: the other replica is kept, and so is what was kept before."""
    record("bad")
    record("good")
    read = records.read

    def damaged(name: str, generation: str) -> Any:
        if name == "bad":
            raise KeyError("url")
        return read(name, generation)

    monkeypatch.setattr(records, "read", damaged)
    for _ in range(3):
        host.turn()
    assert set(host._kept) == {"good"}
    assert len(events(tmp_path, "error")) == 1 and "KeyError" in events(tmp_path, "error")[0]["text"]
    monkeypatch.setattr(records, "read", read)
    host.turn()
    assert set(host._kept) == {"bad", "good"}
    monkeypatch.setattr(records, "read", damaged)
    host.turn()
    assert set(host._kept) == {"bad", "good"}
    end(host)


def test_a_record_that_is_damaged_later_takes_no_replica_out_of_its_routers(
    host: Daemon, tmp_path: Path
) -> None:
    record("good")
    host.turn()
    kept = host._kept["good"]
    for path in (tmp_path / "etc" / "good").glob("*.json"):
        path.write_text("{")
    host.turn()
    assert host._kept == {"good": kept}
    end(host)


def test_a_keeper_that_raises_goes_on_at_its_next_turn(
    host: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record("bad")
    record("good")
    broken = threading.Event()
    broken.set()
    look = daemon.Ranks.look

    def raising(self: Any) -> list[Seen | None]:
        if broken.is_set() and self._record.name == "bad":
            raise ValueError("not expected")
        return look(self)

    monkeypatch.setattr(daemon.Ranks, "look", raising)
    host.turn()
    wait(lambda: events(tmp_path, "error"))
    wait(lambda: host._kept["good"].keeper.state.status.phase == "starting")
    assert host._kept["bad"].is_alive and host._kept["bad"].keeper.state.status.phase == "watching"
    time.sleep(0.1)
    assert len(events(tmp_path, "error")) == 1  # one event, however often it is tried
    broken.clear()
    wait(lambda: host._kept["bad"].keeper.state.status.phase == "starting")
    end(host)


def test_a_turn_of_the_spares_that_raises_is_not_the_last(
    host: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[int] = []

    def raising() -> None:
        turns.append(1)
        raise TypeError("a record has no such field")

    monkeypatch.setattr(host._standbys, "turn", raising)
    monkeypatch.setattr(daemon.takeover, "TURN_S", 0.01)
    thread = threading.Thread(target=host._watch_standbys, daemon=True)
    thread.start()
    wait(lambda: len(turns) > 3)
    host._ended.set()
    thread.join(5)
    assert not thread.is_alive()
    assert [found["text"] for found in events(tmp_path, "error")] == [
        "the spares: TypeError: a record has no such field"
    ]


def test_a_replica_leaves_its_routers_when_it_is_removed_and_not_when_the_service_ends(
    host: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[str] = []
    monkeypatch.setattr(daemon.registration, "TURN_S", 0.01)
    monkeypatch.setattr(daemon.Registration, "leave", lambda self: left.append(self._record.name))
    for name in ("bad", "good"):
        record(name, url=f"http://{name}:9")
    host.turn()
    removed, kept = host._kept["bad"], host._kept["good"]
    containers: Any = host._containers
    containers.names = ["good"]
    host.turn()
    end(host)
    for thread in (*removed._threads, *kept._threads):
        thread.join(20)
    assert left == ["bad"]


def test_a_replica_that_a_successor_replaces_at_its_address_leaves_no_router(
    host: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[str] = []
    monkeypatch.setattr(daemon.registration, "TURN_S", 0.01)
    monkeypatch.setattr(daemon.Registration, "leave", lambda self: left.append(self._record.name))
    record("bad")
    host.turn()
    replaced = host._kept["bad"]
    containers: Any = host._containers
    record("good")
    containers.names = ["good"]
    host.turn()
    end(host)
    for thread in replaced._threads:
        thread.join(20)
    assert left == []


def test_a_host_that_has_left_stops_its_ranks_with_pauses(
    host: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Docker refuses: one event a replica, and no loop without a pause."""
    record("bad")
    record("good")
    containers: Any = host._containers
    containers.refuses_to_stop = True
    host._has_left = True
    now = [1000.0]
    monkeypatch.setattr(daemon.host_state, "uptime", lambda: now[0])
    for _ in range(60):
        now[0] += 1
        host.turn()
    assert containers.stopped.count("good") == containers.stopped.count("bad") == 6
    assert len(events(tmp_path, "left")) == 2
    assert not host._kept
