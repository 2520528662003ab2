"""One file while it is being brought: takes its bytes in order, hashes them as they come, survives a kill."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from threading import Event

from headfirst.common.errors import NotReadyError
from headfirst.node.weights.files import CHUNK, publish
from headfirst.node.weights.proof.hashing import FileHash, Hasher


class FetchStoppedError(Exception):
    """The file is no longer needed; the received part is kept."""


class WrongBytesError(NotReadyError):
    """What came is not the file: it is removed."""


class PartialFile:
    """The bytes of one file so far; as far as a hub's client needs one, a binary file written in order.

    `seen` gets how many bytes came (fewer than none where they had to be given up). What an earlier
    process left at `path` is continued if a sha256 will prove the whole: a power cut may have left zeros.
    """

    def __init__(
        self, path: Path, size: int, sha256: str | None, seen: Callable[[int], object], stopped: Event
    ) -> None:
        self.path = path
        self.size = 0
        self.expected_size = size
        self._expected_sha256 = sha256
        self._seen = seen
        self._stopped = stopped
        self._hasher = Hasher(with_sha256=sha256 is not None)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        self._file = path.open("r+b", buffering=0)
        if sha256 is None or path.stat().st_size > size:
            self.restart()
        else:
            while chunk := self._file.read(CHUNK):
                self._count(chunk)

    def __enter__(self) -> PartialFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def whole(self) -> bool:
        """Whether as many bytes came as the file has."""
        return self.size == self.expected_size

    def write(self, data: bytes) -> int:
        """Take the next bytes. Raises StoppedError, or WrongBytesError where they are too many."""
        if self._stopped.is_set():
            raise FetchStoppedError
        if self.size + len(data) > self.expected_size:
            self.restart()
            raise self._wrong(f"the source sends more than {self.expected_size} bytes")
        view = memoryview(data)
        try:
            while view:  # an unbuffered file may take a part only
                view = view[self._file.write(view) :]
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            hint = "Free space, then run again: it continues."
            raise NotReadyError("the disk is full", where=str(self.path), hint=hint) from error
        self._count(data)
        return len(data)

    def restart(self) -> None:
        """Give up what came."""
        self._file.seek(0)
        self._file.truncate()
        self._seen(-self.size)
        self.size = 0
        self._hasher = Hasher(with_sha256=self._expected_sha256 is not None)

    def tell(self) -> int:
        """The position, for a hub's client: always the end."""
        return self.size

    def seek(self, position: int) -> int:
        """For a hub's client that must begin again; there is no other reason to seek."""
        if position != 0:
            raise ValueError(f"a partial file can start again, but not continue at {position}")
        self.restart()
        return 0

    def truncate(self) -> int:
        """For a hub's client, after `seek`, which has done it."""
        return self.size

    def finish(self, path: Path) -> FileHash:
        """Make it the file `path`, flushed to disk. WrongBytesError where it differs from the source."""
        proof = self._hasher.finish()
        if proof.sha256 != self._expected_sha256:
            self.restart()
            raise self._wrong("the received file does not have the sha256 of the source")
        os.fsync(self._file.fileno())
        path.parent.mkdir(parents=True, exist_ok=True)
        publish(self.path, path)
        return proof

    def _count(self, data: bytes) -> None:
        self._hasher.update(data)
        self.size += len(data)
        self._seen(len(data))

    def _wrong(self, what: str) -> WrongBytesError:
        return WrongBytesError(
            what,
            where=str(self.path),
            hint="Run again; if the error stays, the source, a mirror or a proxy in between has the fault.",
        )
