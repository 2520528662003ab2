"""Files between neighbours by BitTorrent v2: what this node offers, and what it fetches from one other node.

Who is whose neighbour, and which files there are, is decided elsewhere. Only `peers` are spoken to, and only
those that know a torrent's info-hash, which holds a secret, can take part in it.
"""

from __future__ import annotations

import os
import queue
import select
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from functools import reduce
from operator import add
from pathlib import Path

from headfirst.weights.swarm_events import Event, Failed, Finished, Traffic
from headfirst.weights.swarm_lane import Lane

__all__ = ["Event", "Failed", "Finished", "Swarm", "Traffic"]

_SAMPLE_SECONDS = 0.5
_LOOK_SECONDS = 0.02


class Swarm:
    """Sessions of libtorrent on address:port, address:port+1, …; all methods may be called from any thread.

    More than one session is for networks that are faster than one thread (some 10 Gbit/s). `window` files
    of a session are fetched at a time, in the order of the calls of `receive`; the next wait connected.
    `name` is a file's path below `folder`, and its last part the torrent's own name.
    Raises NotReadyError where it cannot listen.
    """

    def __init__(
        self, address: str, port: int, peers: Collection[str], sessions: int = 1, window: int = 1
    ) -> None:
        self._wake, alert_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._alert_fd = alert_fd
        others = sorted(set(peers) - {address})
        self._lanes = [Lane(address, port + lane, others, window, alert_fd) for lane in range(sessions)]
        self._lock = threading.Lock()
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="swarm", daemon=True)
        self._thread.start()

    def seed(self, name: str, torrent: bytes, folder: Path, lane: int = 0) -> None:
        """Offer folder/name, which is whole and proven.

        `lane` is any number, the same on all nodes for one file; files are spread over the sessions by it.
        """
        with self._lock:
            self._lane(lane).seed(name, torrent, folder)

    def receive(self, name: str, torrent: bytes, folder: Path, lane: int = 0) -> None:
        """Fetch folder/name. What is there already is checked first, and only what is wrong is fetched.

        Also resumes it after a `Failed`.
        """
        with self._lock:
            self._lane(lane).receive(name, torrent, folder)

    def link(self, address: str | None) -> None:
        """Fetch from the node `address` (None: from nobody); connections to the one before are cut.

        It is tried again every few seconds for as long as it is the one to fetch from.
        """
        with self._lock:
            for lane in self._lanes:
                lane.link(address)

    def forget(self, name: str) -> None:
        """Neither fetch nor offer `name` any more; its file stays."""
        with self._lock:
            for lane in self._lanes:
                lane.forget(name)

    def events(self, timeout: float) -> list[Event]:
        """What happened since the last call; waits up to `timeout` seconds for the first."""
        events = []
        with suppress(queue.Empty):
            events.append(self._events.get(timeout=timeout))
            while True:
                events.append(self._events.get_nowait())
        return events

    def progress(self) -> dict[str, int]:
        """Verified bytes by name, half a second old."""
        with self._lock:
            return {name: size for lane in self._lanes for name, size in lane.progress().items()}

    def traffic(self) -> Traffic:
        """Of all sessions together, half a second old."""
        with self._lock:
            return reduce(add, (lane.traffic for lane in self._lanes))

    def close(self) -> None:
        """Stop; what was received is kept."""
        self._closing = True
        os.write(self._alert_fd, b"x")
        self._thread.join()
        with self._lock:
            for lane in self._lanes:
                lane.close()
        os.close(self._wake)
        os.close(self._alert_fd)

    def _lane(self, number: int) -> Lane:
        return self._lanes[number % len(self._lanes)]

    def _run(self) -> None:
        """Move the torrents on, however slow the one who takes the events is."""
        next_sample = 0.0
        busy = False
        while not self._closing:
            pause = max(0.0, next_sample - time.monotonic())
            select.select([self._wake], [], [], min(pause, _LOOK_SECONDS) if busy else pause)
            with suppress(BlockingIOError):  # woken by the clock
                os.read(self._wake, 4096)
            with self._lock:
                for lane in self._lanes:
                    for event in lane.take_alerts():
                        self._events.put(event)
                busy = sum(lane.move_up() for lane in self._lanes) > 0
                if time.monotonic() >= next_sample:
                    next_sample = time.monotonic() + _SAMPLE_SECONDS
                    for lane in self._lanes:
                        lane.sample()
