"""Tar archives of others: headers are read within bounds, contents by their place (Python 3.8 or newer)."""

from __future__ import annotations

import contextlib
import io
import tarfile
import typing as t

MAX_HEADER = 1 << 20  # bytes of a header, or of a long name
MAX_HEADERS = 64 << 20  # of all together
# What a file raises that is no archive within these bounds.
ERRORS = (tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError)


@contextlib.contextmanager
def opened(path: str) -> t.Iterator[tarfile.TarFile]:
    """The archive without compression, for its headers alone; `content` reads what a member holds."""
    # "r:" seeks from header to header; a compressed archive could not.
    with _Headers(path) as file, tarfile.open(fileobj=file, mode="r:") as archive:
        yield archive


def content(path: str, info: tarfile.TarInfo, most: int) -> bytes:
    """What a member holds; ValueError for more than `most` bytes, EOFError where the archive ends before."""
    # A sparse file of a few bytes has the size that its header states.
    if not info.isreg() or info.issparse() or not 0 <= info.size <= most:
        raise ValueError("{} is no file of at most {} bytes".format(info.name, most))
    with open(path, "rb") as file:
        file.seek(info.offset_data)
        data = file.read(info.size)
    if len(data) < info.size:
        raise EOFError("{} is cut off".format(info.name))
    return data


class _Headers(io.FileIO):
    """A file of which no more than MAX_HEADER bytes are read at a time, and MAX_HEADERS in all."""

    _left = MAX_HEADERS

    def read(self, size: t.Optional[int] = -1) -> bytes:
        """The next bytes; ValueError for more than that."""
        if size is None or not 0 <= size <= MAX_HEADER:
            raise ValueError("a header has more than {} bytes".format(MAX_HEADER))
        self._left -= size
        if self._left < 0:
            raise ValueError("its headers have more than {} bytes together".format(MAX_HEADERS))
        return super().read(size)
