"""A node that cannot come up is told with its own last words."""

import socket
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from headfirst.common.errors import NotReadyError
from headfirst.control.lab import readiness


class FakeContainer:
    """As much of a container as the wait for its boot looks at."""

    def __init__(self, status: str, systemd: str = "") -> None:
        self.name = "headfirst-demo-node1"
        self.labels = {"headfirst.lab.node": "node1"}
        self.attrs = {"State": {"ExitCode": 7}}
        self.status, self.systemd = status, systemd

    def reload(self) -> None:
        """The state of a fake does not change."""

    def exec_run(self, argv: list[str]) -> Any:
        return SimpleNamespace(output=self.systemd.encode())

    def logs(self, tail: int) -> bytes:
        return b"cannot mount the cgroups"


def test_a_node_that_died_gives_exit_code_and_last_words() -> None:
    with pytest.raises(NotReadyError, match=r"(?s)^node1: .*exit code 7.*cannot mount the cgroups"):
        readiness.await_boot(FakeContainer("exited"), "127.0.0.1")  # type: ignore[arg-type]


def test_a_node_that_hangs_gives_what_was_seen_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "ssh_answers", lambda address: False)
    with pytest.raises(NotReadyError, match=r"systemd: starting, sshd on 10\.9\.8\.11: silent"):
        readiness.await_boot(FakeContainer("running", "starting"), "10.9.8.11", timeout=0.3)  # type: ignore[arg-type]


def test_a_failed_unit_does_not_keep_a_node_from_being_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "ssh_answers", lambda address: True)
    readiness.await_boot(FakeContainer("running", "degraded"), "10.9.8.11", timeout=0.3)  # type: ignore[arg-type]


@pytest.mark.parametrize(("greeting", "answers"), [(b"SSH-2.0-x\r\n", True), (b"HTTP/1.1 400\r\n", False)])
def test_only_an_ssh_server_counts(monkeypatch: pytest.MonkeyPatch, greeting: bytes, answers: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        real, port = socket.create_connection, server.getsockname()[1]
        monkeypatch.setattr(
            socket, "create_connection", lambda address, timeout: real((address[0], port), timeout)
        )
        greeter = threading.Thread(target=lambda: server.accept()[0].sendall(greeting))
        greeter.start()
        assert readiness.ssh_answers("127.0.0.1") is answers
        greeter.join()
