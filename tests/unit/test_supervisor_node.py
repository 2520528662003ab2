"""Supervisors of two nodes over real sockets; the containers are simulated."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import docker
import pytest
from headfirst.common.untrusted import UntrustedError
from headfirst.node.peers.client import NotAMember, PeerClient, Unreachable
from headfirst.node.supervisor import host_state, messages, node, records
from headfirst.node.supervisor.containers import Containers, Rank
from headfirst.node.supervisor.host_state import Holds
from headfirst.node.supervisor.messages import RankRequest, Seen
from headfirst.node.supervisor.node import NodeRanks, SupervisorListener
from headfirst.node.supervisor.takeover import Agreement

NAME, HEAD, WORKER, STRANGER = "headfirst-engine", "127.0.0.21", "127.0.0.22", "127.0.0.23"
TOKEN, KEY = "a token of the test", "the key of head and worker"
GENERATION, OLD = "0123456789ab", "ba9876543210"
UNKNOWN = b'{"do": "remove", "name": "x", "generation": "0123456789ab"}'
RECORD = {
    "url": "http://127.0.0.21:30000",
    "model": "demo",
    "api_key": "sk-secret",
    "readiness": {"path": "/health", "probe_path": "/v1/completions", "probe_body": {}, "answer": ["usage"]},
    "worked_at": 1.0,
    "files": {"/etc/headfirst/engine.yaml": "admin-api-key: of-the-admin\napi-key: sk-secret\n"},
    "supervision": {"ranks": [HEAD, WORKER], "hang_seconds": 60, "start_seconds": 300},
}


class OneRank(Containers):
    """A Docker Engine with one rank, which stops and starts as it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Rank | None = Rank(NAME, 1, GENERATION, True, "one@1", "")
        self.broken = False

    def rank(self, name: str) -> Rank | None:
        if self.broken:
            raise docker.errors.DockerException("no such socket")
        return self.found

    def start(self, name: str) -> None:
        assert self.found
        self.found = replace(self.found, running=True, ended="", start="one@2")

    def stop(self, name: str) -> None:
        assert self.found
        self.found = replace(self.found, running=False, ended="it ended with exit code 143")

    def log(self, name: str) -> list[str]:
        return ["Loading with api_key=sk-secret admin_api_key=of-the-admin", "\x1b[31mred"]


class Worker:
    """The node of rank 1, and requests to it."""

    def __init__(self, folder: Path) -> None:
        self.containers, self.holds = OneRank(), Holds(folder / "run")
        agreement = Agreement(WORKER, PeerClient(WORKER, 1, TOKEN, {}), self.containers)
        self.node = NodeRanks(self.containers, self.holds, agreement)
        keys = {HEAD: KEY, STRANGER: f"{KEY} of another"}
        self.listener = SupervisorListener((WORKER, 0), keys, TOKEN, self.node)
        self.port = self.listener.server_address[1]
        threading.Thread(target=self.listener.serve_forever, args=(0.05,), daemon=True).start()

    def asked(self, do: messages.Do, generation: str = GENERATION, own: str = HEAD, key: str = KEY) -> Seen:
        client = PeerClient(own, int(self.port), TOKEN, {WORKER: key})
        body = messages.encode(RankRequest(do, NAME, generation))
        return messages.seen(client.ask(WORKER, body, limit_s=5, longest=messages.LONGEST), where=WORKER)


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    (tmp_path / "etc" / NAME).mkdir(parents=True)
    (tmp_path / "etc" / NAME / f"{GENERATION}.json").write_text(json.dumps(RECORD))
    read = records.read
    monkeypatch.setattr(records, "read", lambda name, generation: read(name, generation, tmp_path / "etc"))
    monkeypatch.setattr(node, "weights_come", lambda: False)
    worker = Worker(tmp_path)
    yield worker
    worker.listener.shutdown()
    worker.listener.server_close()


def test_the_head_looks_stops_and_starts(worker: Worker) -> None:
    assert worker.asked("look") == Seen(GENERATION, True, "one@1")
    assert worker.asked("stop") == Seen(GENERATION, False, "one@1", "it ended with exit code 143")
    assert worker.asked("start") == Seen(GENERATION, True, "one@2")


def test_only_the_host_of_rank_0_may_stop_and_start(worker: Worker) -> None:
    assert worker.asked("look", own=STRANGER, key=f"{KEY} of another").running
    refused = worker.asked("stop", own=STRANGER, key=f"{KEY} of another")
    assert refused.running and refused.problem == f"{STRANGER} is not its head"


def test_a_request_for_another_generation_changes_nothing(worker: Worker) -> None:
    refused = worker.asked("stop", OLD)
    assert refused.running and refused.problem == "it has another version of the replica"


def test_a_held_replica_is_not_touched(worker: Worker) -> None:
    worker.holds.hold(NAME, 60)
    refused = worker.asked("stop")
    assert refused.running and refused.held and "being changed" in refused.problem
    worker.holds.release(NAME)
    assert not worker.asked("stop").running


def test_nothing_starts_while_weights_come(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    worker.asked("stop")
    monkeypatch.setattr(node, "weights_come", lambda: True)
    refused = worker.asked("start")
    assert not refused.running and "weights" in refused.problem


def test_of_one_replica_one_request_is_carried_out_at_a_time(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on, seen = threading.Event(), threading.Event(), list[Seen]()

    def stop(name: str) -> None:
        begun.set()
        assert goes_on.wait(10)

    monkeypatch.setattr(worker.containers, "stop", stop)
    threads = [threading.Thread(target=lambda: worker.asked("stop"))]
    threads.append(threading.Thread(target=lambda: seen.append(worker.asked("look"))))
    threads[0].start()
    assert begun.wait(10)
    threads[1].start()
    threads[1].join(0.5)
    assert not seen
    worker.node.answer(RankRequest("look", "headfirst-engine-1", ""), HEAD)
    goes_on.set()
    for thread in threads:
        thread.join(10)
    assert seen


def test_docker_that_does_not_answer_is_a_problem_and_no_end(worker: Worker) -> None:
    worker.containers.broken = True
    assert worker.asked("look") == Seen(problem="Docker: no such socket")
    worker.holds.hold(NAME, 60)
    assert worker.asked("look").held
    worker.containers.broken, worker.containers.found = False, None
    assert worker.asked("look") == Seen(held=True)


def test_a_log_has_no_key_and_no_colours(worker: Worker) -> None:
    assert worker.asked("log").log == ("Loading with api_key=*** admin_api_key=***", "red")


def test_who_has_another_key_is_refused(worker: Worker) -> None:
    with pytest.raises(Unreachable):
        worker.asked("stop", key="another one")
    assert worker.asked("look").running


def test_a_host_that_is_no_member_is_refused(worker: Worker) -> None:
    with pytest.raises(NotAMember):
        worker.asked("look", own="127.0.0.24")


def test_an_answer_without_proof_is_none(tmp_path: Path) -> None:
    with socket.create_server((WORKER, 0)) as stranger:

        def answer() -> None:
            connection, _ = stranger.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

        threading.Thread(target=answer, daemon=True).start()
        client = PeerClient(HEAD, stranger.getsockname()[1], TOKEN, {WORKER: KEY})
        with pytest.raises(ConnectionError, match="has another secret"):
            client.ask(WORKER, b"{}", limit_s=5, longest=100)


def test_an_answer_that_comes_byte_by_byte_ends_with_the_limit() -> None:
    """Nobody has proven anything yet, and the keeper of the replica waits."""
    with socket.create_server((WORKER, 0)) as stranger:

        def answer() -> None:
            connection, _ = stranger.accept()
            with connection, suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\nX-Headfirst-Proof: ")
                while True:
                    connection.sendall(b"a")
                    time.sleep(0.1)

        threading.Thread(target=answer, daemon=True).start()
        client = PeerClient(HEAD, stranger.getsockname()[1], TOKEN, {WORKER: KEY})
        begun = time.monotonic()
        with pytest.raises(Unreachable):
            client.ask(WORKER, b"{}", limit_s=1, longest=100)
        assert time.monotonic() - begun < 10


@pytest.mark.parametrize("body", [b"", b"[]", UNKNOWN, b"\xff"])
def test_a_request_that_is_none_is_refused(worker: Worker, body: bytes) -> None:
    with pytest.raises(UntrustedError):
        messages.request(body, where=WORKER)
    with pytest.raises(Unreachable):
        PeerClient(HEAD, int(worker.port), TOKEN, {WORKER: KEY}).ask(WORKER, body, limit_s=5, longest=100)


def test_a_hold_ends_with_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    holds, now = Holds(tmp_path), 100.0
    monkeypatch.setattr(host_state, "uptime", lambda: now)
    holds.hold(NAME, 60)
    assert holds.is_held(NAME) and not holds.is_held("headfirst-engine-1")
    now = 161.0
    assert not holds.is_held(NAME)
    now = 20.0  # after a reboot
    assert not holds.is_held(NAME)


def test_a_hold_of_a_run_ends_with_the_lock_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds = Holds(tmp_path)
    monkeypatch.setattr(host_state, "uptime", lambda: 100.0)
    lock = {"token": "t1", "lease_s": 600, "ends": 700}
    (tmp_path / "lock.json").write_text(json.dumps(lock))
    holds.hold(NAME, 3600)
    assert holds.is_held(NAME)
    (tmp_path / "lock.json").write_text(json.dumps(lock | {"ends": 100}))
    assert not holds.is_held(NAME)
    (tmp_path / "lock.json").write_text(json.dumps(lock | {"token": "t2"}))
    assert not holds.is_held(NAME)
    (tmp_path / "lock.json").unlink()
    assert not holds.is_held(NAME)
