"""The files that this node offers to its neighbours: whole ones, and pieces of those that still grow."""

from __future__ import annotations

import errno
import os
import threading
from dataclasses import dataclass
from pathlib import Path

from headfirst.node.weights.proof.hashing import PIECE, FileHash


@dataclass
class _Item:
    """`here` has a byte for each piece: 1 where it is in the file `path`, proven."""

    proof: FileHash
    path: Path
    here: bytearray


class Shelf:
    """Safe to use from threads. A file is called by its name and by the version of its bytes."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._items: dict[str, _Item] = {}
        self.closed = False
        """Whether nothing is offered any more."""

    def put(self, name: str, proof: FileHash, path: Path, *, whole: bool) -> None:
        """Offer the file `path`, of which all pieces are there, or none yet."""
        with self._changed:
            self._items[name] = _Item(proof, path, bytearray([whole]) * proof.count)
            self._changed.notify_all()

    def add(self, name: str, piece: int) -> int:
        """Offer one more piece; returns how many are lacking now."""
        with self._changed:
            here = self._items[name].here
            here[piece] = 1
            self._changed.notify_all()
            return here.count(0)

    def move(self, name: str, path: Path) -> None:
        """Take note that a file has another path now."""
        with self._changed:
            if item := self._items.get(name):
                item.path = path

    def drop(self, name: str) -> None:
        """Offer a file no more."""
        with self._changed:
            self._items.pop(name, None)
            self._changed.notify_all()

    def close(self) -> None:
        """Offer nothing more."""
        with self._changed:
            self.closed = True
            self._items.clear()
            self._changed.notify_all()

    def bytes_here(self) -> dict[str, int]:
        """Bytes of proven pieces by name."""
        with self._changed:
            return {
                name: min(item.proof.size, item.here.count(1) * PIECE) for name, item in self._items.items()
            }

    def lacking(self, name: str) -> list[int]:
        """The pieces that are not here."""
        with self._changed:
            item = self._items.get(name)
            return [piece for piece, here in enumerate(item.here) if not here] if item else []

    def is_beyond(self, name: str, version: str, start: int) -> bool:
        """Whether a file that is offered ends before byte `start`."""
        with self._changed:
            item = self._items.get(name)
            return item is not None and item.proof.version == version and start >= item.proof.size

    def open(self, name: str, version: str, start: int, timeout: float) -> tuple[int, int] | None:
        """A descriptor and the size of a file, once the piece with byte `start` is here; None after `timeout`
        seconds. The caller closes the descriptor. OSError where the file on disk is not the one offered."""
        with self._changed:
            if self.available(name, version, start, timeout) <= start:
                return None
            item = self._items[name]
            file = os.open(item.path, os.O_RDONLY | os.O_CLOEXEC)
        if os.fstat(file).st_size >= min(item.proof.size, (start // PIECE + 1) * PIECE):
            return file, item.proof.size
        os.close(file)
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    def available(self, name: str, version: str, start: int, timeout: float) -> int:
        """Up to which byte the file is here without a gap from `start` on; `start` itself after `timeout`."""
        with self._changed:
            self._changed.wait_for(lambda: self.closed or self._end(name, version, start) > start, timeout)
            return self._end(name, version, start)

    def _end(self, name: str, version: str, start: int) -> int:
        item = self._items.get(name)
        if item is None or item.proof.version != version:
            return start
        gap = item.here.find(0, start // PIECE)
        return max(start, item.proof.size if gap < 0 else gap * PIECE)
