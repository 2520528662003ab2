"""How fast a disk reads what is on it, measured past the page cache. Writes nothing. Python 3.8+."""

from __future__ import annotations

import mmap
import os
import time

from ansible_collections.headfirst.serving.plugins.module_utils import host_facts

BLOCK = 16 << 20
MOST_BYTES = 1 << 30
MOST_SECONDS = 2.0
# Less than this is over before a disk has shown what it can do.
LEAST_BYTES = 64 << 20


def read_rate(path: str) -> int:
    """Bytes a second of the largest file below `path`; 0 without a large one, or without direct reads."""
    size, largest = max(host_facts.files(path), default=(0, ""))
    if size < LEAST_BYTES:
        return 0
    try:
        file = os.open(largest, os.O_RDONLY | os.O_DIRECT)
    except OSError:  # tmpfs and some network filesystems have no direct reads
        return 0
    try:
        return _rate(file)
    except OSError:
        return 0
    finally:
        os.close(file)


def _rate(file: int) -> int:
    # Direct reads go into memory that begins at a page.
    with mmap.mmap(-1, BLOCK) as buffer:
        total, begin = 0, time.monotonic()
        while total < MOST_BYTES and time.monotonic() - begin < MOST_SECONDS:
            count = os.readv(file, [buffer])
            if not count:
                break
            total += count
        return int(total / (time.monotonic() - begin))
