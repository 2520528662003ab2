"""Processes that a run started: found in /proc by parenthood and session, ended by id, never by name."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import NamedTuple

_SETTLE_S = 5.0
_PAUSE_S = 0.02


class Process(NamedTuple):
    """A process; its start (clock ticks since boot) distinguishes it from a later one with the same id."""

    pid: int
    started: int
    parent: int
    session: int


def descendants(root: int) -> list[Process]:
    """All living processes below `root`, children before grandchildren; `root` is not one of them."""
    children: dict[int, list[Process]] = {}
    for process in _living():
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    queue = [root]
    while queue:
        for child in children.get(queue.pop(0), []):
            found.append(child)
            queue.append(child.pid)
    return found


def start_time(pid: int) -> int | None:
    """When the process started (clock ticks since boot), None where there is no such process."""
    process = _stat(pid)
    return process.started if process else None


def kill(processes: list[Process]) -> None:
    """SIGKILL `processes` and all members of the sessions that they lead, and return when these have ended.

    A member may have been started after `processes` were listed; it keeps its session when its parent ends.
    A process id that was given to another process is left alone.
    """
    starts = {process.pid: process.started for process in processes}
    sessions = {process.pid for process in processes if process.session == process.pid}
    deadline = time.monotonic() + _SETTLE_S
    # One that waits for a device ends after that wait only.
    while time.monotonic() < deadline:
        members = [one for one in _living() if starts.get(one.pid) == one.started or one.session in sessions]
        if not [one for one in members if _killed(one.pid)]:
            return
        time.sleep(_PAUSE_S)


def _killed(pid: int) -> bool:
    """Send SIGKILL. False: the process has ended, or is another user's (sudo ends what it started)."""
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _living() -> list[Process]:
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [process for pid in pids if (process := _stat(pid)) is not None]


def _stat(pid: int) -> Process | None:
    """The process as in proc(5), or None when it is gone or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command's name is in parentheses and may hold spaces.
    fields = text.rpartition(")")[2].split()
    if fields[0] == "Z":
        return None
    return Process(pid, int(fields[19]), parent=int(fields[1]), session=int(fields[3]))
