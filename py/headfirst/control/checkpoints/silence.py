"""A limit on how long a hub may be silent: connecting, sending the name to a name server and reading count.

Every thread here is a daemon: one that still waits for a silent hub does not hold up the end of the process.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

LIMIT_S = 5.0
_T = TypeVar("_T")
_Item = TypeVar("_Item")


class SilentError(Exception):
    """Somebody waits for the network, and nothing has come for LIMIT_S."""


class SilenceWatch:
    """Runs work that announces where it waits for the network; time for anything else does not count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting = 0
        self._last = time.monotonic()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """The block waits for the network; its begin and its end restart the clock."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def chunks(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        """The parts, each of which is waited for."""
        source = iter(parts)
        while True:
            with self.waiting():
                part = next(source, None)
            if part is None:
                return
            yield part

    def run(self, work: Callable[[], _T]) -> _T:
        """What `work` returns or raises; SilentError where the network is silent for too long."""
        outcome: Future[_T] = Future()

        def run() -> None:
            try:
                outcome.set_result(work())
            except BaseException as error:
                outcome.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        while True:
            try:
                return outcome.result(timeout=max(0.01, self._remaining_s()))
            except TimeoutError:
                if outcome.done():  # the work's own
                    raise
                if self._remaining_s() <= 0:
                    raise SilentError from None

    def _count(self, change: int) -> None:
        with self._lock:
            self._waiting += change
            self._last = time.monotonic()

    def _remaining_s(self) -> float:
        with self._lock:
            return LIMIT_S - (time.monotonic() - self._last if self._waiting else 0)


def in_parallel(work: Callable[[_Item], _T], items: Sequence[_Item], threads: int) -> list[_T]:
    """The results in the order of the items; the first error, after which no further item is begun."""
    results: dict[int, _T] = {}
    errors: list[BaseException] = []
    waiting_indices = deque(range(len(items)))

    def run() -> None:
        while not errors:
            try:
                index = waiting_indices.popleft()
            except IndexError:
                return
            try:
                results[index] = work(items[index])
            except BaseException as error:
                errors.append(error)

    workers = [threading.Thread(target=run, daemon=True) for _ in range(min(threads, len(items)))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if errors:
        raise errors[0]
    return [results[index] for index in range(len(items))]
