"""A Docker Engine on this machine: found, or installed and started."""

from __future__ import annotations

import getpass
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import docker
from docker.errors import DockerException

from headfirst.errors import NotReadyError
from headfirst.lab import packages
from headfirst.lab.sudo import as_root
from headfirst.lab.types import Progress, state_home

# The machine's own engine: a remote, rootless or desktop engine cannot carry nodes.
SOCKET = Path("/var/run/docker.sock")
_START_TIMEOUT = 60.0  # seconds


def connect() -> docker.DockerClient | None:
    """A client of the engine on this machine, or None where none answers to this user."""
    try:
        return docker.DockerClient(base_url=f"unix://{SOCKET}", version="auto", timeout=120)
    except DockerException:
        return None


def ensure(progress: Progress) -> docker.DockerClient:
    """A client of this machine's engine, after installing and starting what is missing.

    Raises NotReadyError where it cannot be installed, started or reached.
    """
    packages.ensure(progress)
    if client := connect():
        return client
    if not _answers_root():
        progress("starting a Docker Engine", 0, 1)
        _start()
        progress("starting a Docker Engine", 1, 1)
    if os.geteuid() != 0:
        # Lasts until the engine makes its socket anew; nothing of the system's groups is changed.
        subprocess.run(as_root(["setfacl", "-m", f"u:{getpass.getuser()}:rw", str(SOCKET)]), check=True)
    if client := connect():
        return client
    raise NotReadyError(
        f"The Docker Engine on this machine does not answer on {SOCKET}.",
        hint=f"See what it says: {_log_command()}",
    )


def stop_ours() -> bool:
    """Stops the engine if this package started it by hand; says whether it did."""
    pid_file = _home() / "dockerd.pid"
    if not pid_file.exists():
        return False
    pid = int(pid_file.read_text())
    if _is_dockerd(pid):
        subprocess.run(as_root(["kill", f"-{signal.SIGTERM.value}", str(pid)]), check=True)
        _wait(lambda: not _is_dockerd(pid), "The Docker Engine did not stop")
    for path in (pid_file, _home() / "dockerd.log"):
        subprocess.run(as_root(["rm", "-f", str(path)]), check=True)
    _home().rmdir()
    return True


def _start() -> None:
    if _systemd_is_init():
        subprocess.run(as_root(["systemctl", "start", "docker"]), capture_output=True, check=False)
    else:
        _home().mkdir(mode=0o700, parents=True, exist_ok=True)
        with (_home() / "dockerd.log").open("ab") as log:
            subprocess.Popen(
                as_root(["dockerd", "--pidfile", str(_home() / "dockerd.pid")]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
    _wait(_answers_root, "The Docker Engine did not start")


def _wait(condition: Callable[[], bool], failure: str) -> None:
    end = time.monotonic() + _START_TIMEOUT
    while not condition():
        if time.monotonic() > end:
            raise NotReadyError(
                f"{failure} within {_START_TIMEOUT:.0f} s.", hint=f"See what it says: {_log_command()}"
            )
        time.sleep(0.2)


def _answers_root() -> bool:
    # The client of this process may lack the right to the socket; curl and the docker command may be absent.
    if os.geteuid() == 0:
        return connect() is not None
    script = f"import socket; socket.socket(socket.AF_UNIX).connect({str(SOCKET)!r})"
    return (
        subprocess.run(as_root(["python3", "-c", script]), capture_output=True, check=False).returncode == 0
    )


def _is_dockerd(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "dockerd"
    except FileNotFoundError:
        return False


def _systemd_is_init() -> bool:
    return Path("/run/systemd/system").is_dir()


def _log_command() -> str:
    return "journalctl -u docker -n 30" if _systemd_is_init() else f"tail -n 30 {_home() / 'dockerd.log'}"


def _home() -> Path:
    return state_home().parent / "docker-engine"
