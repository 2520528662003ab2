"""A layer of an image as a tar stream: the same files give the same bytes, on any machine and day."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

# What a build makes is of this time: 1980-01-01, the first that a zip file can hold.
EPOCH = 315532800
_COPY_BYTES = 1 << 20


@dataclass(frozen=True)
class Member:
    """A file of a layer: `size` bytes, first `head`, the rest from the file `source` at the same offset."""

    name: str
    size: int
    executable: bool = False
    head: bytes = b""
    source: Path | None = None


def write(out: IO[bytes], members: Iterable[Member]) -> None:
    """Writes the members, and the folders they need, to `out` as a tar archive. Owner is root."""
    with tarfile.TarFile(fileobj=out, mode="w", format=tarfile.PAX_FORMAT, copybufsize=_COPY_BYTES) as tar:
        folders: set[str] = set()
        for member in sorted(members, key=lambda member: member.name):
            for parent in reversed(Path(member.name).parents[:-1]):
                if (folder := str(parent)) not in folders:
                    folders.add(folder)
                    tar.addfile(_header(folder, tarfile.DIRTYPE, 0o755))
            info = _header(member.name, tarfile.REGTYPE, 0o755 if member.executable else 0o644)
            info.size = member.size
            if member.source is None:
                tar.addfile(info, io.BytesIO(member.head))
                continue
            with member.source.open("rb") as source:
                source.seek(len(member.head))
                tar.addfile(info, _Joined(member.head, source) if member.head else source)


class _Joined(io.RawIOBase):
    """`head`, then what `rest` still holds."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._head, self._rest = head, rest

    def read(self, size: int = -1) -> bytes:
        head, self._head = self._head[:size], self._head[size:]
        return head + self._rest.read(size - len(head))


def _header(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.mtime = kind, mode, EPOCH
    return info
