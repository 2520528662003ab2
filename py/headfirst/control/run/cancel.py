"""Ctrl-C: the first one lets Ansible end its workers, the second one (or ten seconds) kills what is left.

ansible-runner's own cancel is a SIGKILL to ansible-playbook, which leaves its workers, each in a session
of its own, running the current task. SIGINT to ansible-playbook makes it stop them itself. Processes
are found in /proc by parenthood and session, and ended by id, never by name.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import NamedTuple

_SETTLE_S = 5.0
_PAUSE_S = 0.02


class ProcessStat(NamedTuple):
    """A process; its start (clock ticks since boot) distinguishes it from a later one with the same id."""

    pid: int
    started: int
    parent: int
    session: int


def descendants(root: int) -> list[ProcessStat]:
    """All living processes below `root`, children before grandchildren; `root` is not one of them."""
    children: dict[int, list[ProcessStat]] = {}
    for process in _living():
        children.setdefault(process.parent, []).append(process)
    processes: list[ProcessStat] = []
    queue = [root]
    while queue:
        for child in children.get(queue.pop(0), []):
            processes.append(child)
            queue.append(child.pid)
    return processes


def start_time(pid: int) -> int | None:
    """When the process started (clock ticks since boot), None where there is no such process."""
    process = _stat(pid)
    return process.started if process else None


def kill(processes: list[ProcessStat]) -> None:
    """SIGKILL `processes` and all members of the sessions that they lead, and return when these have ended.

    A member may have been started after `processes` were listed; it keeps its session when its parent ends.
    A process id that was given to another process is left alone.
    """
    starts = {process.pid: process.started for process in processes}
    sessions = {process.pid for process in processes if process.session == process.pid}
    deadline = time.monotonic() + _SETTLE_S
    # One that waits for a device ends after that wait only.
    while time.monotonic() < deadline:
        members = [
            process
            for process in _living()
            if starts.get(process.pid) == process.started or process.session in sessions
        ]
        if not [process for process in members if _killed(process.pid)]:
            return
        time.sleep(_PAUSE_S)


def _killed(pid: int) -> bool:
    """Send SIGKILL. False: the process has ended, or is another user's (sudo ends what it started)."""
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _living() -> list[ProcessStat]:
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [process for pid in pids if (process := _stat(pid)) is not None]


def _stat(pid: int) -> ProcessStat | None:
    """The process as in proc(5), or None when it is gone or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command's name is in parentheses and may hold spaces.
    fields = text.rpartition(")")[2].split()
    if fields[0] == "Z":
        return None
    return ProcessStat(pid, int(fields[19]), parent=int(fields[1]), session=int(fields[3]))


@contextlib.contextmanager
def handling(numbers: Iterable[int], handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """These signals call `handler` while this is open (main thread only)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in previous.items():
            signal.signal(number, earlier)


GRACE_S = 10.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Canceller:
    """Counts requests to stop and carries them out from ansible-runner's loop."""

    def __init__(self) -> None:
        self.requests = 0
        self.ansible_pid: int | None = None  # known once ansible-playbook has sent its first event
        self._interrupted_at: float | None = None
        self._seen: list[ProcessStat] = []

    @property
    def requested(self) -> bool:
        """Whether anyone asked the run to stop."""
        return self.requests > 0

    def on_signals(self) -> contextlib.AbstractContextManager[None]:
        """Ctrl-C, a closed terminal and SIGTERM ask for a stop while this is open (main thread only)."""
        # What nohup or a background shell has switched off stays off.
        signals = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        return handling(signals, self._on_signal)

    def must_kill(self) -> bool:
        """ansible-runner's cancel callback, called a few times a second: True makes it SIGKILL the group."""
        if not self.requests:
            return False
        if self.ansible_pid is None:  # no worker was started yet
            return True
        if self._interrupted_at is None:
            self._interrupted_at = time.monotonic()
            self._seen = descendants(self.ansible_pid)
            with contextlib.suppress(ProcessLookupError):  # it ended by itself meanwhile
                os.kill(self.ansible_pid, signal.SIGINT)
            self._seen += descendants(self.ansible_pid)  # a worker that was started in between
            return False
        if self.requests > 1 or time.monotonic() - self._interrupted_at > GRACE_S:
            self._seen += descendants(self.ansible_pid)
            return True
        return False

    def end_now(self, runner: threading.Thread) -> None:
        """Have `runner` killed if it still runs, wait for it, and end what its workers left behind."""
        if runner.is_alive():
            self.requests += 2
        runner.join()
        kill(self._seen)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.requests += 1
