"""Where a checkpoint comes from: what a hub or a folder lists, and its bytes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from headfirst.common.checkpoint_files import is_checkpoint_file
from headfirst.common.errors import HeadfirstError, NotReadyError
from headfirst.common.untrusted import (
    file_listing,
    for_terminal,
    hex_digest,
    integer,
    line,
    shown,
    without_password,
)
from headfirst.node.weights.fetch.partial_file import PartialFile

# Answers to a request that may be right the next time: timeout, range beyond the end, too early, too many.
_LATER = (408, 416, 425, 429)

_LONGEST_REASON = 500  # characters of a client's message

LARGEST_FILE = 1 << 50
"""Bytes; more is no file of a checkpoint."""


@dataclass(frozen=True)
class RemoteFile:
    """One file: relative path, size in bytes, and its hex sha256 where the source has it."""

    name: str
    size: int
    sha256: str | None


@dataclass(frozen=True)
class Listing:
    """What the source holds now. `pinned` names just this content: a commit, or a hash of all hashes."""

    pinned: str
    files: Sequence[RemoteFile]


def checked_listing(pinned: Any, entries: Iterable[tuple[Any, Any, Any]], where: str) -> Listing:
    """The listing of `entries` (name, size, sha256 or None) as `where` sent them, reduced to what is wanted.

    UntrustedError where one of them, wanted or not, has a name that leads out of the folder or clashes with
    another one, or has a size or a sha256 that is none.
    """
    entries = list(entries)
    names = file_listing((entry[0] for entry in entries), where=where)
    files = []
    for name, (_name, size, sha256) in zip(names, entries, strict=True):
        quoted = shown(name)
        count = integer(size, what=f"the size of {quoted}", where=where, high=LARGEST_FILE)
        if sha256 is not None:
            hex_digest(sha256, what=f"the sha256 of {quoted}", where=where, digits=64)
        if is_checkpoint_file(name):
            files.append(RemoteFile(name, count, sha256))
    return Listing(line(pinned, what="the commit", where=where, limit=128), files)


class Source(Protocol):
    """A place that a checkpoint comes from. `place` and `pull` are called from several threads at once."""

    note: str = ""
    """What a person should read beside the progress; often nothing."""

    def list(self) -> Listing:
        """Ask what is there; InputError where there is no such thing, NotReadyError where nothing answers."""

    def place(self, file: RemoteFile, target: Path) -> bool:
        """Have the file in `target` without moving its bytes; False where they must be pulled, as a hub's."""
        return False

    def pull(self, file: RemoteFile, listing: Listing, part: PartialFile) -> None:
        """Write the file's bytes from `part.size` on into `part`.

        Raises SourceBusyError where a later try may help; then `part` keeps what came.
        """


class SourceBusyError(NotReadyError):
    """The source does not answer now. `retry_after` is the wait that it asks for, in seconds."""

    def __init__(self, what: str, *, where: str, hint: str, retry_after: float | None = None) -> None:
        super().__init__(what, where=where, hint=hint)
        self.retry_after = retry_after


def client_failed(error: Exception, where: str) -> HeadfirstError:
    """What a hub's client raised, as an error for people. Clients word it on the first line."""
    if isinstance(error, HeadfirstError):
        return error
    first = for_terminal((str(error).strip() or type(error).__name__).splitlines()[0])[:_LONGEST_REASON]
    without_signatures = re.sub(r"(https?://[^\s?]+)\?\S+", r"\1", without_password(first))
    what = f"the hub cannot be used now: {without_signatures}"
    hint = "Check that the head reaches the hub (or its mirror), then run again: it continues."
    status = getattr(error, "status_code", None) or getattr(_response(error), "status_code", None) or 0
    if 400 <= status < 500 and status not in _LATER:
        return NotReadyError(what, where=where, hint=hint)
    retry_after = _retry_after(error)
    wait = f" (the hub requires a wait of {retry_after:.0f} s)" if retry_after else ""
    return SourceBusyError(f"{what}{wait}", where=where, hint=hint, retry_after=retry_after)


def _retry_after(error: Exception) -> float | None:
    """Seconds that the answer behind `error` asks to wait; None where it gives no number of seconds."""
    headers: Mapping[str, str] = getattr(_response(error), "headers", None) or {}
    told = getattr(error, "retry_after", None) or headers.get("Retry-After", "")
    try:
        seconds = float(told)
    except (TypeError, ValueError):
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def _response(error: Exception) -> object:
    return getattr(error, "response", None)
