"""What collectors hand over: a file of the bundle, and where its bytes are on this machine."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from headfirst.common.errors import NotReadyError
from headfirst.control.machine.packages import Advance

CHUNK = 4 << 20


@dataclass(frozen=True)
class Item:
    """`size` bytes of `source` from `offset` on: an image's layer is a part of its archive."""

    source: Path
    offset: int
    size: int

    @classmethod
    def of(cls, source: Path) -> Item:
        """A whole file."""
        return cls(source, 0, source.stat().st_size)

    def chunks(self) -> Iterator[bytes]:
        """Its bytes. NotReadyError where the file has become shorter."""
        remaining_bytes = self.size
        with self.source.open("rb") as file:
            os.posix_fadvise(file.fileno(), self.offset, remaining_bytes, os.POSIX_FADV_SEQUENTIAL)
            file.seek(self.offset)
            while remaining_bytes:
                chunk = file.read(min(CHUNK, remaining_bytes))
                if not chunk:
                    raise NotReadyError(
                        "the file was cut off while it was read", where=str(self.source), hint="Run again."
                    )
                remaining_bytes -= len(chunk)
                yield chunk


def sha256(path: Path) -> str:
    """Of a whole file, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


Items = Mapping[str, Item]
"""Items by path in the bundle."""


def hashes(items: Items, advance: Advance) -> dict[str, str]:
    """The sha256 of each item by path. Equal parts of files are read once."""
    total, done = sum(item.size for item in items.values()), 0
    item_digests: dict[Item, str] = {}
    for item in items.values():
        if item not in item_digests:
            digest, read = hashlib.sha256(), 0
            for chunk in item.chunks():
                digest.update(chunk)
                read += len(chunk)
                advance("hashing", done + read, total)
            item_digests[item] = digest.hexdigest()
        done += item.size
        advance("hashing", done, total)
    return {path: item_digests[item] for path, item in items.items()}
