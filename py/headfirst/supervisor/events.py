"""What the supervisor did and why: one JSON object a line in a file of this node, and in its journal."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

FILE = Path("/var/lib/headfirst/supervisor/events.jsonl")
_LONGEST = 4 << 20  # bytes; then the older half goes


class Events:
    """The history of this node. Safe to use from threads."""

    def __init__(self, file: Path = FILE) -> None:
        self._file = file
        self._lock = threading.Lock()

    def add(
        self, name: str, kind: str, text: str, *, generation: str = "", rank: int = 0, log: Sequence[str] = ()
    ) -> None:
        """Record that `kind` happened to the replica `name`; `log` are lines of the rank that it is about."""
        entry = {"at": time.time(), "name": name, "generation": generation, "kind": kind, "text": text}
        entry |= {"rank": rank, "log": list(log)} if log else {}
        _print(f"{name}: {text}")
        with self._lock:
            try:
                self._append(json.dumps(entry).encode() + b"\n")
            except OSError as error:  # a full disk must not end the supervision
                _print(f"{self._file}: {error}")

    def _append(self, line: bytes) -> None:
        self._file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._file.touch(mode=0o600)
        if self._file.stat().st_size > _LONGEST:
            self._halve()
        with self._file.open("ab+", buffering=0) as file:
            before = file.tell()
            if before and os.pread(file.fileno(), 1, before - 1) != b"\n":  # the power failed in a line
                line = b"\n" + line
            if file.write(line) != len(line):
                file.truncate(before)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _halve(self) -> None:
        """Remove the older half; bytes, since a damaged disk may have left some that are no text."""
        history = self._file.read_bytes()
        part = self._file.with_suffix(".part")
        part.touch(mode=0o600)
        part.write_bytes(history[len(history) // 2 :].partition(b"\n")[2])
        part.replace(self._file)


def _print(text: str) -> None:
    """To the journal, where there is one: it may be full, or gone."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)
