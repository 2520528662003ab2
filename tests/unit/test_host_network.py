"""Listeners and peers, looked up on this machine itself."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator

import pytest
from ansible_collections.headfirst.serving.plugins.module_utils import host_network
from ansible_collections.headfirst.serving.plugins.module_utils.host_source import HostSource
from serving import free_port


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_a_listener_is_found_with_its_process(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    (busy,) = host_network.busy_ports(HostSource(), [port, free_port()])
    assert busy["port"] == port
    assert busy["process"].endswith(f"({os.getpid()})")
    assert busy["container"] == ""


def test_a_port_held_inside_our_container_carries_its_name(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    container = {"Id": "ab" * 32, "Names": ["/headfirst-engine"], "Ports": None}  # as Podman answers
    cgroup = f"0::/system.slice/docker-{'cd' * 32}.scope/docker/{container['Id']}\n"
    monkeypatch.setattr(HostSource, "docker", lambda source, path: [container])
    monkeypatch.setattr(HostSource, "read", lambda source, path: cgroup)
    (busy,) = host_network.busy_ports(HostSource(), [listener.getsockname()[1]])
    assert busy["container"] == "headfirst-engine"


def test_a_published_port_carries_its_containers_name(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = listener.getsockname()[1]
    ports = [{"PrivatePort": 9000, "Type": "tcp"}, {"PrivatePort": 80, "PublicPort": port, "Type": "tcp"}]
    container = {"Id": "ab" * 32, "Names": ["/headfirst-webui"], "Ports": ports}
    monkeypatch.setattr(HostSource, "docker", lambda source, path: [container])
    assert host_network.busy_ports(HostSource(), [port])[0]["container"] == "headfirst-webui"


def test_a_silent_peer_is_reported_and_a_refused_connection_is_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert host_network.unreachable(["127.0.0.1"], [free_port()]) == []
    # More peers than connections at a time.
    peers = [f"127.0.{number // 200}.{number % 200 + 1}" for number in range(host_network.AT_ONCE + 50)]
    assert host_network.unreachable(peers, [free_port()]) == []
    monkeypatch.setattr(host_network, "_outcomes", lambda targets: {("10.0.0.1", 30000): 0})
    assert host_network.unreachable(["10.0.0.1", "10.0.0.2"], [22, 30000]) == ["10.0.0.2"]


def test_a_port_where_nobody_listens_is_not_cut_off(listener: socket.socket) -> None:
    assert host_network.cut_ports(["127.0.0.1"], [listener.getsockname()[1], free_port()]) == []
    assert host_network.cut_ports([], [22]) == []


def test_a_port_that_is_closed_is_named_with_its_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    probed: list[tuple[str, int]] = []

    def outcomes(targets: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
        probed.extend(targets)
        others = {target: errno.ECONNREFUSED for target in targets if target != ("10.0.0.2", 5000)}
        return others | {("10.0.0.1", 5001): errno.EHOSTUNREACH}

    monkeypatch.setattr(host_network, "_outcomes", outcomes)
    cut = host_network.cut_ports(["10.0.0.1", "10.0.0.2"], [5000, 5001])
    assert cut == [
        {"peer": "10.0.0.1", "port": 5001, "rejected": True},
        {"peer": "10.0.0.2", "port": 5000, "rejected": False},
    ]
    (ephemeral,) = {port for _, port in probed} - {5000, 5001}
    assert 32768 <= ephemeral <= 60999
