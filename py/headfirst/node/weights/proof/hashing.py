"""What proves a file, in one pass: xxh3 for our copies, the hub's sha256, BLAKE3 of each piece for the wire.

The digests of the pieces travel before the bytes, so that a node proves each piece as it arrives.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import xxhash
from blake3 import blake3

from headfirst.node.weights.files import CHUNK
from headfirst.node.weights.proof.hash_cache import FileRecord

PIECE = 1024 * 1024
"""Bytes that are proven, and repaired, together; the last piece of a file may be smaller."""
DIGEST = 32
"""Bytes of a BLAKE3 digest."""


@dataclass(frozen=True)
class FileHash:
    """`size` in bytes; `xxh3` (128 bits) and `sha256` in hex, the latter None where nobody asked for it.

    `pieces` are the concatenated BLAKE3 digests of the pieces, b"" for an empty file.
    """

    size: int
    xxh3: str
    sha256: str | None
    pieces: bytes

    @property
    def record(self) -> FileRecord:
        """What a manifest keeps of it."""
        return FileRecord(self.size, self.xxh3, self.sha256)

    @cached_property
    def version(self) -> str:
        """A name for just these bytes: 128 bits in hex."""
        return blake3(self.pieces).hexdigest(length=16)

    @property
    def count(self) -> int:
        """The number of pieces."""
        return -(-self.size // PIECE)

    @property
    def is_consistent(self) -> bool:
        """Whether there is one digest for each piece."""
        return len(self.pieces) == self.count * DIGEST

    def piece_size(self, piece: int) -> int:
        """Bytes of a piece."""
        return min(PIECE, self.size - piece * PIECE)

    def proves(self, piece: int, data: memoryview) -> bool:
        """Whether `data` are the bytes of a piece. Releases the GIL."""
        return blake3(data).digest() == self.pieces[piece * DIGEST : (piece + 1) * DIGEST]


class Hasher:
    """Hashes a stream that comes in chunks of any size. Not safe to use from several threads at once."""

    def __init__(self, *, with_sha256: bool = False) -> None:
        self._size = 0
        self._xxh3 = xxhash.xxh3_128()
        self._sha256 = hashlib.sha256() if with_sha256 else None
        self._piece = blake3()
        self._pieces = bytearray()

    def update(self, data: bytes | memoryview) -> None:
        """Take the next bytes."""
        self._xxh3.update(data)
        if self._sha256:
            self._sha256.update(data)
        view = memoryview(data)
        while view:
            part = view[: PIECE - self._size % PIECE]
            self._piece.update(part)
            self._size += len(part)
            if self._size % PIECE == 0:
                self._end_piece()
            view = view[len(part) :]

    def finish(self) -> FileHash:
        """The hashes of all that came."""
        if self._size % PIECE:
            self._end_piece()
        sha256 = self._sha256.hexdigest() if self._sha256 else None
        return FileHash(self._size, self._xxh3.hexdigest(), sha256, bytes(self._pieces))

    def _end_piece(self) -> None:
        self._pieces += self._piece.digest()
        self._piece = blake3()


def hash_file(
    path: Path, seen: Callable[[int], object] = lambda _count: None, *, with_sha256: bool = False
) -> FileHash:
    """Hash a file; `seen` is called with the bytes of each chunk."""
    hasher = Hasher(with_sha256=with_sha256)
    for chunk in _chunks(path):
        hasher.update(chunk)
        seen(len(chunk))
    return hasher.finish()


def fingerprint(path: Path, seen: Callable[[int], object] = lambda _count: None) -> FileRecord:
    """Size and xxh3 of a file, at the speed of memory: enough where only accidents are to be found."""
    digest = xxhash.xxh3_128()
    size = 0
    for chunk in _chunks(path):
        digest.update(chunk)
        size += len(chunk)
        seen(len(chunk))
    return FileRecord(size, digest.hexdigest())


def _chunks(path: Path) -> Iterator[memoryview]:
    """The bytes of a file; each chunk is valid until the next one is asked for."""
    buffer = memoryview(bytearray(CHUNK))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            yield buffer[:count]
