"""A Docker Engine on this machine: found, or installed and started."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import time
from pathlib import Path

import docker
from docker.errors import DockerException

from headfirst.common.errors import NotReadyError
from headfirst.control.machine import packages
from headfirst.control.machine.packages import Advance
from headfirst.control.machine.sudo import as_root
from headfirst.control.paths import state_dir

# The machine's own engine: a remote, rootless or desktop engine cannot carry nodes.
SOCKET = Path("/var/run/docker.sock")
_TIMEOUT = 60.0  # seconds for the engine to start or to stop
_API_TIMEOUT = 300  # seconds; an import of the node image is one call


def connect() -> docker.DockerClient | None:
    """A client of the engine on this machine, or None where none runs."""
    if SOCKET.exists() and not os.access(SOCKET, os.R_OK | os.W_OK):
        # Ends when the engine starts again; the system's groups stay as they are.
        subprocess.run(as_root(["chown", getpass.getuser(), str(SOCKET)]), check=True)
    try:
        return docker.DockerClient(base_url=f"unix://{SOCKET}", version="auto", timeout=_API_TIMEOUT)
    except DockerException:
        return None


def ensure(progress: Advance) -> docker.DockerClient:
    """A client of this machine's engine, after installing and starting what is missing.

    Raises NotReadyError where it cannot be installed or started.
    """
    packages.install(packages.missing(packages.FOR_LAB), progress)
    if client := connect():
        return client
    progress("starting a Docker Engine", 0, 1)
    client = _start()
    progress("starting a Docker Engine", 1, 1)
    return client


def start_installed(progress: Advance) -> docker.DockerClient | None:
    """As `ensure`, but nothing is installed: where a package is missing, a client only if an engine runs."""
    return connect() if packages.missing(packages.FOR_LAB) else ensure(progress)


def stop_ours() -> None:
    """Stops the engine if it was started by hand here, and removes its log."""
    pid_file = _home() / "dockerd.pid"
    if not pid_file.exists():
        return
    pid = int(pid_file.read_text())
    if _is_dockerd(pid):
        subprocess.run(as_root(["kill", str(pid)]), check=True)
        end = time.monotonic() + _TIMEOUT
        while _is_dockerd(pid) and time.monotonic() < end:
            time.sleep(0.2)
    shutil.rmtree(_home())


def _start() -> docker.DockerClient:
    by_systemd = Path("/run/systemd/system").is_dir()
    if by_systemd:
        subprocess.run(as_root(["systemctl", "start", "docker"]), capture_output=True, check=False)
    else:
        _home().mkdir(mode=0o700, parents=True, exist_ok=True)
        argv = ["setsid", "--fork", "dockerd", "--pidfile", str(_home() / "dockerd.pid")]
        with _log().open("ab") as log:
            subprocess.run(as_root(argv), stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True)
    end = time.monotonic() + _TIMEOUT
    while time.monotonic() < end:
        if client := connect():
            return client
        time.sleep(0.2)
    why = "journalctl -u docker -n 30" if by_systemd else f"tail -n 30 {_log()}"
    raise NotReadyError(f"The Docker Engine did not start in {_TIMEOUT:.0f} s.", hint=f"See why: `{why}`")


def _is_dockerd(pid: int) -> bool:
    try:
        # Empty for a process that has ended and that nobody waits for, as in a container without an init.
        return b"dockerd" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def _home() -> Path:
    return state_dir() / "docker-engine"


def _log() -> Path:
    return _home() / "dockerd.log"
