"""Reads a checkpoint into the page cache, so that an engine loads it from memory.

Engines map or read one shard after the other, with one stream; several streams get more out of a disk, an
array or a share. Plain reads are used: posix_fadvise returns before the pages are there, so its progress
are unknown, and on a network file system it is often ignored.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from headfirst.node.weights.files import CHUNK, contained, list_files
from headfirst.node.weights.progress import WeightsProgress

STREAMS = 8
_PART = 64 * 1024 * 1024
_MEMORY = Path("/proc/meminfo")


@dataclass(frozen=True)
class Warming:
    """Bytes to be read from the beginning of each file, in the order in which engines read them."""

    parts: Mapping[str, int]
    total: int
    """Bytes of all files."""

    @property
    def size(self) -> int:
        """Bytes to be read."""
        return sum(self.parts.values())


def available_memory(meminfo: Path = _MEMORY) -> int:
    """Bytes that programs can get without swapping; what the page cache holds counts as free."""
    for line in meminfo.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def choose(folder: Path, room: int, *, whole: bool) -> Warming:
    """What of `folder` fits into `room` bytes; with `whole`, all or nothing."""
    sizes = {name: contained(folder, name).stat().st_size for name in list_files(folder)}
    total = sum(sizes.values())
    if whole and total > room:
        return Warming({}, total)
    parts: dict[str, int] = {}
    for name, size in sizes.items():
        if room <= 0:
            break
        parts[name] = min(size, room)
        room -= parts[name]
    return Warming(parts, total)


def warm(folder: Path, warming: Warming) -> None:
    """Read it, with progress."""
    jobs = [
        (folder / name, start, min(start + _PART, size))
        for name, size in warming.parts.items()
        for start in range(0, size, _PART)
    ]
    with (
        WeightsProgress("read into the page cache", warming.size) as progress,
        ThreadPoolExecutor(STREAMS) as pool,
    ):
        for _job in pool.map(lambda job: _read(job, progress.add), jobs):
            pass


def _read(job: tuple[Path, int, int], seen: Callable[[int], object]) -> None:
    path, start, end = job
    buffer = memoryview(bytearray(CHUNK))
    with path.open("rb", buffering=0) as file:
        while start < end:
            count = os.preadv(file.fileno(), [buffer[: end - start]], start)
            if not count:  # it became shorter
                return
            start += count
            seen(count)
