"""Where a checkpoint comes from: what a hub or a folder says it holds, and getting it."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Protocol

from headfirst.errors import HeadfirstError, NotReadyError

# Hidden files, and other formats of the same weights: these double the bytes and no engine here reads them.
_IGNORED = (
    ".*", "*.bin", "*.pt", "*.pth", "*.ckpt", "*.gguf", "*.h5", "*.msgpack", "*.onnx", "*.ot", "*.tflite",
    "consolidated*.safetensors",
)  # fmt: skip


@dataclass(frozen=True)
class RemoteFile:
    """One file: relative path, size in bytes, and its hex sha256 where the source says it."""

    name: str
    size: int
    sha256: str | None


@dataclass(frozen=True)
class Listing:
    """What the source holds now. `pinned` is the commit, or "" where the source does not say one."""

    pinned: str
    files: Sequence[RemoteFile]


class Source(Protocol):
    """A place that a checkpoint comes from."""

    def list(self) -> Listing:
        """Ask what is there; InputError where there is no such thing, NotReadyError where nothing answers."""

    def get(self, listing: Listing, target: Path) -> None:
        """Bring all files of `listing` into `target`, continuing what an earlier call began."""


def wanted(name: str) -> bool:
    """Whether a file of the source is part of the checkpoint as we keep it."""
    return not any(fnmatch(part, pattern) for pattern in _IGNORED for part in name.split("/"))


def client_failed(error: Exception, where: str) -> HeadfirstError:
    """What a hub's client raised, as an error for people. Clients word it on the first line."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NotReadyError(
            "the disk is full", where=where, hint="Free space, then run again: it continues."
        )
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    return NotReadyError(
        f"the hub cannot be used now: {first}",
        where=where,
        hint="Check that the head reaches the hub (or its mirror), then run again: it continues.",
    )
