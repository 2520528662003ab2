"""Hosts that meet on ports of the loopback: both ways, and what stands between them told apart."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from ansible_collections.headfirst.serving.plugins.module_utils import comm_reach
from ansible_collections.headfirst.serving.plugins.module_utils.comm_reach import PortMeeting

A, B = "127.0.0.2", "127.0.0.3"


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def meet(*meetings: PortMeeting, seconds: float = 5.0) -> list[dict[str, Any]]:
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda one: one.hold(seconds), meetings))


def states(result: dict[str, Any]) -> list[str]:
    return [one["state"] for one in result["reached"]]


def test_both_meet_and_go_before_the_time_is_up() -> None:
    first, second, third = free_ports(3)
    one = PortMeeting(A, [first, second], [B], [(B, third)], "word")
    other = PortMeeting(B, [third], [A], [(A, first), (A, second)], "word")
    found = meet(one, other, seconds=60)
    assert [states(result) for result in found] == [["ok"], ["ok", "ok"]]
    assert found[0]["listening"] == {str(first): "open", str(second): "open"}
    assert {(seen["address"], seen["port"]) for seen in found[0]["arrived"]} == {(B, first), (B, second)}


def test_a_peer_that_comes_late_is_waited_for() -> None:
    first, second = free_ports(2)
    early = PortMeeting(A, [first], [B], [(B, second)], "word")
    result: list[dict[str, Any]] = []
    waiting = threading.Thread(target=lambda: result.append(early.hold(10)))
    waiting.start()
    waiting.join(0.7)
    assert not result
    assert states(PortMeeting(B, [second], [A], [(A, first)], "word").hold(10)) == ["ok"]
    waiting.join()
    assert states(result[0]) == ["ok"]


def test_nobody_there_is_refused() -> None:
    own, nobody = free_ports(2)
    [found] = meet(PortMeeting(A, [own], [B], [(B, nobody)], "word"), seconds=0.5)
    assert states(found) == ["refused"]
    assert found["arrived"] == []


def test_packets_that_vanish_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comm_reach, "CONNECT_TIMEOUT_S", 0.2)
    (own,) = free_ports(1)
    with socket.create_server((B, 0), backlog=0) as full:
        # A full queue lets further SYNs fall without an answer, as a firewall that drops does.
        crowd = [socket.socket() for _ in range(4)]
        for one in crowd:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        [found] = meet(PortMeeting(A, [own], [], [full.getsockname()], "word"), seconds=0.5)
        for one in crowd:
            one.close()
    assert states(found) == ["dropped"]


def test_a_port_in_use_is_held_and_its_holder_is_sent_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comm_reach, "GREETING_TIMEOUT_S", 0.3)
    with socket.create_server(("", 0)) as service:
        port = service.getsockname()[1]
        holder = PortMeeting(A, [port], [], [], "word")
        (own,) = free_ports(1)
        found = meet(holder, PortMeeting(B, [own], [], [(A, port)], "word"), seconds=2)
        connection, _ = service.accept()
        with connection:
            assert connection.recv(100) == b""
    assert found[0]["listening"] == {str(port): "held"}
    assert states(found[1]) == ["stranger"]


def test_a_listener_of_another_run_is_a_stranger() -> None:
    first, second = free_ports(2)
    other = PortMeeting(A, [first], [], [], "another")
    found = PortMeeting(B, [second], [], [(A, first)], "word").hold(1)
    other.hold(0)
    assert states(found) == ["stranger"]
