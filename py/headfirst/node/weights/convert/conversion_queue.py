"""Converts shards in threads of its own, each as soon as it and the shards of its scales are here."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event, Lock

from headfirst.node.weights.convert.conversion import Conversion


class ConversionQueue:
    """`done` are the shards whose BF16 form is whole; `threads` are converted at a time."""

    def __init__(self, conversion: Conversion, threads: int) -> None:
        self.done: set[str] = set()
        self.worked = False
        """Whether any shard had to be converted."""
        self._conversion = conversion
        self._threads = threads
        self._running: dict[Future[None], str] = {}
        self._pool = ThreadPoolExecutor(threads, "convert")
        self._stopped = Event()
        self._lock = Lock()
        self._read: dict[str, int] = {}

    def step(self, here: AbstractSet[str], hashes: Mapping[str, str]) -> None:
        """Start what can be started; raises what a conversion raised. `hashes` are the xxh3 of the files."""
        for future in [future for future in self._running if future.done()]:
            name = self._running.pop(future)
            future.result()
            self.done.add(name)
            with self._lock:
                del self._read[name]
        running = set(self._running.values())
        for name in sorted((self._conversion.outputs & here) - self.done - running):
            if self._conversion.is_done(name, hashes):
                self.done.add(name)
            elif len(self._running) < self._threads and self._conversion.needs(name) <= here:
                self.worked = True
                self._running[self._pool.submit(self._convert, name, hashes)] = name

    def bytes_converted(self, sizes: Mapping[str, int]) -> int:
        """Bytes of source files (`sizes` by name) that are converted, with what was read of those in work."""
        with self._lock:
            in_work = sum(self._read.values())
        return in_work + sum(sizes.get(name, 0) for name in self.done)

    def close(self) -> None:
        """End the conversions in work; they are begun again another time."""
        self._stopped.set()
        self._pool.shutdown(cancel_futures=True)

    def _convert(self, name: str, hashes: Mapping[str, str]) -> None:
        def seen(count: int) -> None:
            with self._lock:
                self._read[name] += count

        with self._lock:
            self._read[name] = 0
        self._conversion.convert(name, hashes, seen, self._stopped.is_set)
