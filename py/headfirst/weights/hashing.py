"""What proves a file, in one pass: xxh3 for our own copies, the hub's sha256, BitTorrent's tree for the wire.

The tree is that of BitTorrent v2 (BEP 52): SHA-256 of blocks of 16 KiB, in pairs up to one root; the layer of
the pieces travels with the torrent, so that each piece is proven as it arrives.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import xxhash

from headfirst.weights.files import CHUNK
from headfirst.weights.hash_cache import FileRecord

BLOCK = 16 * 1024
PIECE = 256 * 1024
_LEAVES = PIECE // BLOCK
_NO_HASH = bytes(32)


@dataclass(frozen=True)
class FileHash:
    """`size` in bytes; `xxh3` (128 bits) and `sha256` in hex, the latter None where nobody asked for it.

    `root` is the tree's root (b"" for an empty file); `layer` the concatenated 32-byte hashes of the pieces,
    empty where one piece holds the whole file.
    """

    size: int
    xxh3: str
    sha256: str | None
    root: bytes
    layer: bytes

    @property
    def record(self) -> FileRecord:
        """What a manifest keeps of it."""
        return FileRecord(self.size, self.xxh3, self.sha256)

    @property
    def is_consistent(self) -> bool:
        """Whether the layer has one hash for each piece of `size` bytes, and gives the root."""
        pieces = -(-self.size // PIECE)
        if pieces <= 1:
            return not self.layer and len(self.root) == (len(_NO_HASH) if self.size else 0)
        step = len(_NO_HASH)
        if len(self.layer) != pieces * step:
            return False
        hashes = [self.layer[start : start + step] for start in range(0, len(self.layer), step)]
        return _reduce(hashes, _reduce([_NO_HASH] * _LEAVES, _NO_HASH)) == self.root


class Hasher:
    """Hashes a stream that comes in chunks of any size. Not safe to use from several threads at once."""

    def __init__(self, *, with_sha256: bool = False) -> None:
        self._size = 0
        self._xxh3 = xxhash.xxh3_128()
        self._sha256 = hashlib.sha256() if with_sha256 else None
        self._rest = b""
        self._leaves: list[bytes] = []
        self._pieces: list[bytes] = []

    def update(self, data: bytes | memoryview) -> None:
        """Take the next bytes."""
        self._size += len(data)
        self._xxh3.update(data)
        if self._sha256:
            self._sha256.update(data)
        if self._rest:
            missing = BLOCK - len(self._rest)
            self._rest += bytes(data[:missing])
            data = data[missing:]
            if len(self._rest) < BLOCK:
                return
            self._add_leaf(self._rest)
        view = memoryview(data)
        whole = len(view) - len(view) % BLOCK
        for start in range(0, whole, BLOCK):
            self._add_leaf(view[start : start + BLOCK])
        self._rest = bytes(view[whole:])

    def finish(self) -> FileHash:
        """The hashes of all that came."""
        if self._rest:
            self._add_leaf(self._rest)
            self._rest = b""
        sha256 = self._sha256.hexdigest() if self._sha256 else None
        root, layer = self._tree()
        return FileHash(self._size, self._xxh3.hexdigest(), sha256, root, layer)

    def _add_leaf(self, block: bytes | memoryview) -> None:
        self._leaves.append(hashlib.sha256(block).digest())
        if len(self._leaves) == _LEAVES:
            self._pieces.append(_reduce(self._leaves, _NO_HASH))
            self._leaves = []

    def _tree(self) -> tuple[bytes, bytes]:
        if not self._pieces or (len(self._pieces) == 1 and not self._leaves):
            return (self._pieces[0] if self._pieces else _reduce(self._leaves, _NO_HASH)), b""
        if self._leaves:  # beyond the end of the file every leaf is zero
            padded = self._leaves + [_NO_HASH] * (_LEAVES - len(self._leaves))
            self._pieces.append(_reduce(padded, _NO_HASH))
            self._leaves = []
        empty_piece = _reduce([_NO_HASH] * _LEAVES, _NO_HASH)
        return _reduce(self._pieces, empty_piece), b"".join(self._pieces)


def hash_file(
    path: Path, seen: Callable[[int], object] = lambda _count: None, *, with_sha256: bool = False
) -> FileHash:
    """Hash a file; `seen` is told the bytes of each chunk."""
    hasher = Hasher(with_sha256=with_sha256)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            hasher.update(chunk)
            seen(len(chunk))
    return hasher.finish()


def fingerprint(path: Path, seen: Callable[[int], object] = lambda _count: None) -> FileRecord:
    """Size and xxh3 of a file, at the speed of memory: enough where only accidents are to be found."""
    digest = xxhash.xxh3_128()
    size = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            size += len(chunk)
            seen(len(chunk))
    return FileRecord(size, digest.hexdigest())


def _reduce(layer: Sequence[bytes], padding: bytes) -> bytes:
    """The root over `layer`, filled up with `padding` to a power of two; b"" over nothing."""
    if not layer:
        return b""
    hashes = list(layer)
    while len(hashes) > 1:
        if len(hashes) % 2:
            hashes.append(padding)
        hashes = [
            hashlib.sha256(left + right).digest()
            for left, right in zip(hashes[::2], hashes[1::2], strict=True)
        ]
        padding = hashlib.sha256(padding + padding).digest()
    return hashes[0]
