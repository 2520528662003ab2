"""Processes that a run started: found in /proc by parenthood, ended by id, never by name."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """A process; its start (clock ticks since boot) distinguishes it from a later one with the same id."""

    pid: int
    started: int


def descendants(root: int) -> list[Process]:
    """All living processes below `root`, children before grandchildren; `root` is not one of them."""
    children: dict[int, list[Process]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (stat := _stat(int(entry.name))) is not None:
            parent, process = stat
            children.setdefault(parent, []).append(process)
    found: list[Process] = []
    queue = [root]
    while queue:
        for child in children.get(queue.pop(0), []):
            found.append(child)
            queue.append(child.pid)
    return found


def start_time(pid: int) -> int | None:
    """When the process started (clock ticks since boot), None where there is no such process."""
    stat = _stat(pid)
    return stat[1].started if stat else None


def kill(processes: list[Process]) -> None:
    """SIGKILL those that still live; a process id that was given to another process is left alone."""
    for process in processes:
        stat = _stat(process.pid)
        if stat is not None and stat[1] == process:
            with contextlib.suppress(ProcessLookupError):  # it ended in between
                os.kill(process.pid, signal.SIGKILL)


def _stat(pid: int) -> tuple[int, Process] | None:
    """(parent's pid, process) as in proc(5), or None when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command's name is in parentheses and may hold spaces.
    fields = text.rpartition(")")[2].split()
    return int(fields[1]), Process(pid, int(fields[19]))
