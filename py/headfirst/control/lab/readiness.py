"""When a node is up: systemd has started everything and sshd answers."""

from __future__ import annotations

import socket
import time
from typing import Any

from docker.errors import APIError
from docker.models.containers import Container

from headfirst.common.errors import NotReadyError
from headfirst.control.lab.nodes import name_of

_TIMEOUT = 90.0  # seconds; 4 s is usual for one node, 8 nodes on 2 cores take 20 s


def await_boot(container: Container, address: str, timeout: float = _TIMEOUT) -> None:
    """Returns when the node can be logged in to.

    Raises NotReadyError with the node's last words if it dies, or is not up within `timeout` seconds.
    """
    name = name_of(container)
    end = time.monotonic() + timeout
    state = ""
    while time.monotonic() < end:
        container.reload()
        if container.status not in ("running", "restarting"):
            code = container.attrs["State"]["ExitCode"]
            raise NotReadyError(
                f"The node stopped while it was starting (exit code {code}):\n{_last_words(container)}",
                where=name,
                hint="`deploy lab down`, then the same command again, recreates it.",
            )
        state = _systemd_state(container)
        # "degraded": a unit has failed, which a role or a user may fix; the node itself is up.
        if state in ("running", "degraded") and ssh_answers(address):
            return
        time.sleep(0.2)
    raise NotReadyError(
        f"The node did not start within {timeout:.0f} s (systemd: {state or 'silent'}, sshd on {address}: "
        f"{'answers' if ssh_answers(address) else 'silent'}).",
        where=name,
        hint=f"Read: `docker exec {container.name} systemctl list-jobs` and `journalctl -b`.",
    )


def ssh_answers(address: str) -> bool:
    """Whether an SSH server greets on port 22 within a second."""
    try:
        with socket.create_connection((address, 22), timeout=1) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def _systemd_state(container: Container) -> str:
    try:
        output: Any = container.exec_run(["systemctl", "is-system-running"]).output
    except APIError:
        return ""  # the container has stopped between two readings; the next one reports it
    return str(output, errors="replace").strip()


def _last_words(container: Container) -> str:
    return bytes(container.logs(tail=10)).decode(errors="replace").strip() or "(it wrote nothing)"
