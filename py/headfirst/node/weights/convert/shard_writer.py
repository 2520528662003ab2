"""A file of known size, written from front to back, hashed on the way, there as a whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from contextlib import suppress
from pathlib import Path

import xxhash

from headfirst.node.weights.files import publish

_PAGE = 4096
"""Direct writes start and end at multiples of it, in the file and in memory."""
_NOT_SUPPORTED = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


class ShardWriter:
    """Writes `target` through a hidden part file beside it. Not safe to use from several threads at once.

    Writes go past the page cache, where the filesystem can: a quarter of the CPU time, and the source
    shards that wait there to be converted and sent on are not pushed out. Holds `room` bytes of memory.
    """

    def __init__(self, target: Path, size: int, room: int) -> None:
        self._target = target
        self._part = target.with_name(f".{target.name}.part")
        self._size = size
        self._buffer = mmap.mmap(-1, -(-(room + _PAGE) // _PAGE) * _PAGE)  # its memory starts at a page
        self._view = memoryview(self._buffer)
        self._held = 0  # bytes at the front of the buffer that are not yet written
        self._written = 0
        self._digest = xxhash.xxh3_128()

    def __enter__(self) -> ShardWriter:
        self._file = _open(self._part)
        try:
            _reserve(self._file, self._size)
        except BaseException:
            self._discard()
            raise
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind:
            self._discard()

    def free(self, count: int) -> memoryview:
        """Memory for the next `count` bytes (at most `room`) of the file; `add` takes them from there."""
        return self._view[self._held : self._held + count]

    def add(self, count: int) -> None:
        """Write the `count` bytes that are in the memory of `free`."""
        self._digest.update(self._view[self._held : self._held + count])
        self._held += count
        whole = self._held - self._held % _PAGE
        self._write(whole)
        self._view[: self._held - whole] = self._view[whole : self._held]
        self._held -= whole

    def finish(self) -> str:
        """Flush everything to the disk and give the file its name; returns its xxh3 (128 bits) in hex."""
        _through_cache(self._file)  # the rest is no whole page
        self._write(self._held)
        os.fsync(self._file)
        os.close(self._file)
        publish(self._part, self._target)
        return self._digest.hexdigest()

    def _write(self, count: int) -> None:
        start = 0
        while start < count:
            try:
                start += os.pwrite(self._file, self._view[start:count], self._written + start)
            except OSError as error:
                if error.errno != errno.EINVAL or not _through_cache(self._file):
                    raise  # else direct writes need more than whole pages here
        self._written += count

    def _discard(self) -> None:
        with suppress(OSError):  # finish() may have closed it before it failed
            os.close(self._file)
        self._part.unlink(missing_ok=True)


def _open(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    try:
        return os.open(path, flags | os.O_DIRECT, 0o644)
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED:
            raise
        return os.open(path, flags, 0o644)


def _through_cache(file: int) -> bool:
    """Make further writes go through the page cache; returns whether they did not."""
    flags = fcntl.fcntl(file, fcntl.F_GETFL)
    fcntl.fcntl(file, fcntl.F_SETFL, flags & ~os.O_DIRECT)
    return bool(flags & os.O_DIRECT)


def _reserve(file: int, size: int) -> None:
    """Take the space now: a full disk is found before the work, and the file is in one piece."""
    try:
        os.posix_fallocate(file, 0, size)
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED:
            raise
