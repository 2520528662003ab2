"""This process as the holder of a lock, and whether the process that holds one still lives."""

from __future__ import annotations

import getpass
import hashlib
import os
import secrets
import socket
from pathlib import Path
from typing import Any

from headfirst.control.ownership.records import Lock
from headfirst.control.run.cancel import start_time


def who() -> str:
    """The user and this controller, for people."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


def new_lock(verb: str, cluster: str) -> dict[str, Any]:
    """The lock that this process takes; the host adds `since`."""
    return {
        "token": secrets.token_hex(16),
        "holder": who(),
        "verb": verb,
        "cluster": cluster,
        "controller": _controller(),
        "pid": os.getpid(),
        "started": start_time(os.getpid()) or 0,
    }


def is_dead(lock: Lock) -> bool:
    """Whether the run that took the lock was on this machine and has ended without releasing it."""
    here = _controller()
    return bool(here) and lock.controller == here and start_time(lock.pid) != lock.started


def _controller() -> str:
    """This boot of this machine, and the namespace that process ids count in; "" where there is no /proc."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = Path("/proc/self/ns/pid").readlink()
    except OSError:
        return ""
    return hashlib.sha256(f"{boot} {namespace}".encode()).hexdigest()[:16]
