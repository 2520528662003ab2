"""A real router (smg, started as in its container) in front of slow replicas, each a process."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from headfirst.common.errors import NotReadyError
from headfirst.common.untrusted import UntrustedError
from headfirst.decide.plan.front.router import command, with_replicas
from headfirst.node.supervisor.records import GenerationRecord
from headfirst.node.supervisor.registration import RouterApi, Worker, drain, is_needed, missing
from serving import QuietHandler, free_port, serving

WORKER = Path(__file__).parents[1] / "slow_worker.py"
KEY, ADMIN_KEY = "sk-of-the-service", "key-of-the-supervisors"
Answer = tuple[int, str]


class Lan:
    """One router and two replicas, or more."""

    def __init__(self, replicas: int = 2) -> None:
        self.port, self.metrics_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.ports = [free_port() for _ in range(replicas)]
        self.urls = [f"http://127.0.0.1:{port}" for port in self.ports]
        self.workers = [self._worker(port) for port in self.ports]
        self.start()
        self.router = RouterApi(self.url, ADMIN_KEY)
        self.clients = ThreadPoolExecutor(16)

    def start(self, *, workers: dict[str, dict[str, str | int]] | None = None) -> None:
        run = command("127.0.0.1", self.port, self.metrics_port, "round_robin")
        words = ["--api-key", KEY, "--control-plane-api-keys", f"headfirst:headfirst:admin:{ADMIN_KEY}"]
        self.process = subprocess.Popen(
            [sys.executable, *(with_replicas(run, workers) if workers else run)],
            env=os.environ | {"ROUTER_ARGUMENTS": " ".join(words)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until(lambda: answers(f"{self.url}/health"))

    def kill_router(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.kill_router()
        for worker in self.workers:
            worker.kill()
            worker.wait()
        self.clients.shutdown()

    def register(self) -> None:
        for url in self.urls:
            self.router.register(url, KEY)
        until(lambda: Counter(one.status for one in self.router.workers())["ready"] == len(self.urls))

    def one_by_one(self, count: int) -> Iterator[int]:
        """Numbers of requests, each when the router has the one before, so that they alternate."""
        for number in range(count):
            until(lambda wanted=number: self.running() == wanted)  # type: ignore[misc]
            yield number

    def running(self) -> int:
        return sum(one.requests for one in self.router.workers())

    def chat(self, words: int = 1, pause: float = 0.0, *, stream: bool = False) -> Future[Answer]:
        return self.clients.submit(self._chat, words, pause, stream)

    def _chat(self, words: int, pause: float, stream: bool) -> Answer:
        asked = {"model": "slow", "messages": [{"role": "user", "content": "Hello!"}], "stream": stream}
        asked |= {"max_tokens": words, "temperature": pause}
        headers = {"Authorization": f"Bearer {KEY}"}
        answer = httpx.post(f"{self.url}/v1/chat/completions", json=asked, headers=headers, timeout=60)
        return answer.status_code, answer.text

    def served_by(self, answer: Answer) -> int:
        """The replica that gave an answer."""
        assert answer[0] == 200, answer
        return next(number for number, port in enumerate(self.ports) if f'"{port}"' in answer[1])

    def _worker(self, port: int) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, str(WORKER), str(port)], env=os.environ | {"KEY": KEY})
        until(lambda: answers(f"http://127.0.0.1:{port}/health"))
        return process


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=1).is_success
    except httpx.HTTPError:
        return False


def until(is_true: Callable[[], bool], seconds: float = 30.0) -> None:
    ends = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < ends
        time.sleep(0.05)


@pytest.fixture
def lan() -> Iterator[Lan]:
    lan = Lan()
    try:
        yield lan
    finally:
        lan.close()


def test_a_router_without_supervisors_has_the_replicas_of_its_command_line(lan: Lan) -> None:
    lan.kill_router()
    gone = lan.workers.pop()
    gone.kill()
    gone.wait()
    lan.start(workers={url: {} for url in lan.urls})
    # The one that answers is used, whether or not the other is there.
    until(lambda: [one.url for one in lan.router.workers() if one.status == "ready"] == lan.urls[:1])
    assert lan.served_by(lan.chat().result()) == 0
    # It is found again after the router's restart, which nobody notices.
    lan.kill_router()
    lan.start(workers={url: {} for url in lan.urls})
    until(lambda: [one.url for one in lan.router.workers() if one.status == "ready"] == lan.urls[:1])


def test_requests_are_spread_over_replicas_that_registered_once(lan: Lan) -> None:
    assert lan.router.workers() == []
    lan.register()
    lan.register()
    assert sorted(one.url for one in lan.router.workers()) == sorted(lan.urls)
    found = Counter(lan.served_by(lan.chat().result()) for _ in range(20))
    assert found == {0: 10, 1: 10}


def test_a_replica_that_dies_loses_only_the_streams_that_it_had_begun(lan: Lan) -> None:
    lan.register()
    asked = [lan.chat(100 if number < 4 else 60, 0.05, stream=number < 4) for number in lan.one_by_one(8)]
    streams, whole = asked[:4], asked[4:]
    time.sleep(0.5)  # words have come
    lan.workers[0].send_signal(signal.SIGKILL)
    after = [lan.chat() for _ in range(10)]
    assert {lan.served_by(one.result()) for one in (*whole, *after)} == {1}
    ended = [one.result()[1] for one in streams]
    lost = [text for text in ended if "stream_error" in text]
    assert len(lost) == 2
    assert all(text.count(f'"{lan.ports[1]}"') == 100 for text in ended if text not in lost)


def test_a_router_that_starts_again_gets_its_replicas_from_the_supervisors(lan: Lan) -> None:
    lan.register()
    lan.kill_router()
    with pytest.raises(NotReadyError):
        lan.router.workers()
    lan.start()
    assert lan.router.workers() == []
    lan.register()
    assert lan.chat().result()[0] == 200


def test_a_drained_replica_ends_its_stream_and_gets_no_new_request(lan: Lan) -> None:
    lan.register()
    streams = [lan.chat(15, 0.2, stream=True) for _ in range(2)]
    until(lambda: all(one.requests == 1 for one in lan.router.workers()))
    assert [lan.router.drain(lan.urls[0]), lan.router.drain(lan.urls[0])] == [1, 1]
    assert {lan.served_by(lan.chat().result()) for _ in range(6)} == {1}
    for stream in streams:
        assert "[DONE]" in stream.result()[1]
        assert "error" not in stream.result()[1]
    until(lambda: lan.router.drain(lan.urls[0]) == 0)
    lan.register()
    assert {lan.served_by(lan.chat().result()) for _ in range(6)} == {0, 1}


ROLES: list[dict[str, str | int]] = [
    {"worker_type": "prefill", "bootstrap_port": 7100},
    {"worker_type": "decode"},
]


def test_prefill_and_decode_replicas_may_be_on_the_command_line(lan: Lan) -> None:
    lan.kill_router()
    lan.start(workers=dict(zip(lan.urls, ROLES, strict=True)))
    until(lambda: Counter(one.status for one in lan.router.workers())["ready"] == len(lan.urls))
    assert lan.served_by(lan.chat().result()) == 1


def test_prefill_and_decode_replicas_keep_their_roles(lan: Lan) -> None:
    def register() -> None:
        for url, fields in zip(lan.urls, ROLES, strict=True):
            lan.router.register(url, KEY, fields)
        until(lambda: Counter(one.status for one in lan.router.workers())["ready"] == len(lan.urls))

    lan.router.register(lan.urls[0], KEY, ROLES[0])
    until(lambda: [one.status for one in lan.router.workers()] == ["ready"])
    assert lan.chat().result()[0] == 503  # nobody decodes
    register()
    assert lan.served_by(lan.chat().result()) == 1
    for url in lan.urls:
        lan.router.drain(url)
        assert lan.chat().result()[0] == 503
        register()  # smg takes a drained replica back with the fields that it gets now
        assert lan.served_by(lan.chat().result()) == 1


def record(lan: Lan, replica: int, role: str) -> GenerationRecord:
    """What a run has written of the replica before it starts it in this role."""
    worker: dict[str, str | int] = {} if role == "regular" else {"worker_type": role}
    if role == "prefill":
        worker["bootstrap_port"] = 7100
    how = {"probe_path": "/v1/chat/completions", "probe_body": {"max_tokens": 1, "temperature": 0}}
    how["probe_body"] |= {"messages": [{"role": "user", "content": "Hello!"}]}  # type: ignore[operator]
    at = {"name": "engine", "generation": "", "ranks": ("127.0.0.1",), "url": lan.urls[replica]}
    more = {"path_generates": False, "metrics": None, "routers": (), "hang_s": 60.0, "start_s": 60.0}
    return GenerationRecord(**at, model="slow", api_key=KEY, readiness=how, worker=worker, **more)  # type: ignore[arg-type]


def change(lan: Lan, roles: Sequence[str]) -> list[bool]:
    """What a run does at the routers, one replica after the other; whether each is needed meanwhile."""
    needed, changed = [], dict[str, str]()
    for replica, role in enumerate(roles):
        new, routers = record(lan, replica, role), [lan.router]
        needed.append(is_needed(new.url, routers, {}))
        assert is_needed(new.url, routers, changed) == needed[-1]
        assert drain(new.url, routers, 30, KEY) == (0, {})
        assert missing(new, routers, 30) == {}
        changed[new.url] = role
    return needed


SHAPES = [["regular"] * 4, ["prefill", "prefill", "decode", "decode"], ["regular"] * 4]


def test_a_change_of_the_shape_loses_no_request() -> None:
    lan, over, statuses = Lan(replicas=4), threading.Event(), Counter[object]()

    def client(*, stream: bool) -> None:
        while not over.is_set():
            status, text = lan.chat(8 if stream else 1, 0.03, stream=stream).result()
            statuses[status if "error" not in text else text] += 1

    try:
        lan.register()
        threads = [threading.Thread(target=client, kwargs={"stream": number < 2}) for number in range(4)]
        for thread in threads:
            thread.start()
        for roles in SHAPES[1:]:
            assert change(lan, roles) == [False] * 4
            assert Counter(one.role for one in lan.router.workers()) == Counter(roles)
        over.set()
        for thread in threads:
            thread.join()
    finally:
        over.set()
        lan.close()
    assert set(statuses) == {200}, statuses


def test_one_replica_of_each_part_cannot_be_changed_without_an_outage(lan: Lan) -> None:
    lan.register()
    before = {lan.urls[0]: "prefill"}
    assert [is_needed(url, [lan.router], before) for url in lan.urls] == [False, True]
    assert change(lan, ["prefill", "decode"]) == [False, True]
    assert lan.served_by(lan.chat().result()) == 1
    # The decode replica of a change that fails returns to what it was, and serves beside the prefill replica.
    assert drain(lan.urls[1], [lan.router], 30, KEY) == (0, {})
    assert missing(record(lan, 1, "regular"), [lan.router], 30) == {}
    assert [lan.served_by(lan.chat().result()) for _ in range(4)] == [1] * 4


def test_a_router_that_cannot_complete_a_request_does_not_use_the_replica(lan: Lan) -> None:
    for replica in range(2):
        assert missing(record(lan, replica, "regular"), [lan.router], 30) == {}
    wrong = replace(record(lan, 0, "regular"), model="another")
    assert "404" in missing(wrong, [lan.router], 0.1)[lan.url]
    assert [*missing(wrong, [RouterApi("http://127.0.0.1:9", ADMIN_KEY)], 0.1)] == ["http://127.0.0.1:9"]


def test_a_replica_that_is_removed_ends_its_stream(lan: Lan) -> None:
    lan.register()
    streams = [lan.chat(10, 0.2, stream=True) for _ in range(2)]
    until(lambda: all(one.requests == 1 for one in lan.router.workers()))
    lan.router.remove(lan.urls[0])
    lan.router.remove(lan.urls[0])
    assert [one.url for one in lan.router.workers()] == lan.urls[1:]
    assert all("[DONE]" in one.result()[1] and "error" not in one.result()[1] for one in streams)


def test_the_key_of_the_service_does_not_open_the_list_of_replicas(lan: Lan) -> None:
    with pytest.raises(NotReadyError, match="401"):
        RouterApi(lan.url, KEY).workers()
    for key in ("", ADMIN_KEY):
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        asked = httpx.post(f"{lan.url}/v1/chat/completions", json={"model": "slow"}, headers=headers)
        assert asked.status_code == 401
    arguments = Path(f"/proc/{lan.process.pid}/cmdline").read_text()
    assert KEY not in arguments
    assert ADMIN_KEY not in arguments


def test_names_of_models_and_states_need_no_key(lan: Lan) -> None:
    lan.register()
    for path in ("/v1/models", "/health", "/readiness"):
        assert httpx.get(f"{lan.url}{path}").is_success
    # The replicas here have no metrics; what counts is that they are asked.
    assert "backend" in httpx.get(f"{lan.url}/engine_metrics").text
    assert httpx.get(f"{lan.url}/get_server_info").status_code == 401


def replying(left: list[tuple[int, bytes]], **headers: str) -> AbstractContextManager[str]:
    """A router that gives these answers, the last one ever after; status 0 closes the connection."""

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            status, body = left.pop(0) if len(left) > 1 else left[0]
            if not status:
                return
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    return serving(Handler)


GOOD = {"id": "01a20327-f11f-7008-bf4e-189e8d1103ee", "url": "http://a", "status": "ready", "load": 0}


@pytest.mark.parametrize(
    "workers",
    [
        {},
        [1],
        [GOOD | {"id": "../metrics"}],
        [GOOD | {"url": "http://a\x1b[2J"}],
        [GOOD | {"status": "asleep"}],
        [GOOD | {"worker_type": "king"}],
        [GOOD | {"load": -1}],
        [GOOD | {"load": True}],
    ],
)
def test_an_answer_that_no_router_gives_is_refused(workers: object) -> None:
    with replying([(200, json.dumps({"workers": workers}).encode())]) as url, pytest.raises(UntrustedError):
        RouterApi(url, ADMIN_KEY).workers()


def test_a_replica_is_the_one_at_exactly_its_address() -> None:
    listed = [GOOD | {"url": f"http://{host}:30000"} for host in ("a", "b", "c")]
    with replying([(200, json.dumps({"workers": listed}).encode())]) as url:
        router = RouterApi(url, ADMIN_KEY)
        for host in ("b", "c"):
            assert (worker := router.worker(f"http://{host}:30000")) and worker.url == f"http://{host}:30000"
        assert router.worker("http://b:3000") is router.worker("http://d:30000") is None


def draining(requests: int) -> bytes:
    return json.dumps({"workers": [GOOD | {"status": "draining", "load": requests}]}).encode()


NO_ANSWERS = [(500, b"{}"), (409, b"{}"), (401, b"{}"), (200, b"soon"), (0, b"")]


@pytest.mark.parametrize(("status", "body"), NO_ANSWERS)
def test_a_router_that_fails_does_not_answer_that_nothing_runs(status: int, body: bytes) -> None:
    """It fails once; then its replica has 7 requests, then none."""
    answers = [(status, body), (200, draining(7)), (200, draining(0))]
    with replying(answers) as url:
        assert drain("http://a", [RouterApi(url, ADMIN_KEY)], 30) == (0, {})
    assert len(answers) == 1


def test_a_drain_reports_the_routers_whose_requests_are_not_known() -> None:
    gone = f"http://127.0.0.1:{free_port()}"  # one that stops refuses connections while its requests go on
    with (
        replying([(500, b"{}")]) as failing,
        replying([(200, draining(7))]) as sure,
        socket.create_server(("127.0.0.1", 0)) as late,
    ):
        slow = f"http://127.0.0.1:{late.getsockname()[1]}"
        routers = [RouterApi(url, ADMIN_KEY, timeout_s=0.2) for url in (failing, sure, slow, gone)]
        left, unknown = drain("http://a", routers, 1)
    assert (left, [*unknown]) == (7, [failing, slow, gone])
    assert "500" in unknown[failing]


def test_a_router_whose_key_was_replaced_answers_to_the_new_one(lan: Lan) -> None:
    lan.register()
    asked = lan.chat(30, 0.05)
    until(lambda: lan.running() == 1)
    routers = [RouterApi(lan.url, key) for key in ("a key of before", ADMIN_KEY)]
    urls = [worker.url for worker in lan.router.workers() if worker.requests]
    assert drain(urls[0], routers, 0.1) == (1, {})
    assert drain(urls[0], routers, 30) == (0, {})
    assert asked.result()[0] == 200


def test_a_replica_that_is_not_ready_keeps_its_requests_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    router = RouterApi("http://127.0.0.1:9", ADMIN_KEY)
    found = iter([[Worker(str(GOOD["id"]), "http://a", "not_ready", requests=3)]])
    monkeypatch.setattr(router, "workers", lambda: next(found))
    assert router.drain("http://a") == 3


def test_an_answer_without_an_end_and_a_redirect_are_refused() -> None:
    with (
        replying([(200, b" " * (2 << 20))]) as url,
        replying([(302, b"{}")], Location=f"{url}/workers") as moved,
    ):
        with pytest.raises(UntrustedError):
            RouterApi(url, ADMIN_KEY).workers()
        with pytest.raises(NotReadyError, match="302"):
            RouterApi(moved, ADMIN_KEY).workers()
