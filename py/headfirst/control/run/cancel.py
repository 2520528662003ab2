"""Ctrl-C: the first one lets Ansible end its workers, the second one (or ten seconds) kills what is left.

ansible-runner's own cancel is a SIGKILL to ansible-playbook, which leaves its workers, each in a session
of its own, running the current task. SIGINT to ansible-playbook makes it stop them itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

from headfirst.control.run.processes import Process, descendants, kill

GRACE_S = 10.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Canceller:
    """Counts requests to stop and carries them out from ansible-runner's loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.requests = 0
        self.ansible_pid: int | None = None  # known once ansible-playbook has sent its first event
        self._interrupted_at: float | None = None
        self._seen: list[Process] = []

    @property
    def requested(self) -> bool:
        """Whether anyone asked the run to stop."""
        return self.requests > 0

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[None]:
        """Ctrl-C, a closed terminal and SIGTERM ask for a stop while this is open (main thread only)."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        # What nohup or a background shell has switched off stays off.
        wanted = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        previous = {number: signal.signal(number, self._on_signal) for number in wanted}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def must_kill(self) -> bool:
        """ansible-runner's cancel callback, called a few times a second: True makes it SIGKILL the group."""
        if not self.requests:
            return False
        if self.ansible_pid is None:  # no worker was started yet
            return True
        if self._interrupted_at is None:
            self._interrupted_at = self._clock()
            self._seen = descendants(self.ansible_pid)
            with contextlib.suppress(ProcessLookupError):  # it ended by itself meanwhile
                os.kill(self.ansible_pid, signal.SIGINT)
            self._seen += descendants(self.ansible_pid)  # a worker that was started in between
            return False
        if self.requests > 1 or self._clock() - self._interrupted_at > GRACE_S:
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
