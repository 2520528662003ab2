"""What the supervisor did and why: one JSON object a line in a file of this node, and in its journal."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from headfirst.common.state_files import replace_file

FILE = Path("/var/lib/headfirst/supervisor/events.jsonl")
# Characters of the logs of the ranks that an event is not about: all together, and of each at least.
_OTHER_LOGS, _LEAST_LOG = 65_536, 1024
_LONGEST = 4 << 20  # bytes; then the older half goes


class Events:
    """The history of this node. Safe to use from threads."""

    def __init__(self, file: Path = FILE) -> None:
        self._file = file
        self._lock = threading.Lock()

    def add(
        self,
        name: str,
        kind: str,
        text: str,
        *,
        generation: str = "",
        rank: int = 0,
        logs: Mapping[int, Sequence[str]] | None = None,
    ) -> None:
        """Record that `kind` happened to the replica `name`; the event is about `rank`.

        `logs` are the last lines of ranks: where that one has lost another, the other log has the reason.
        """
        entry = {"at": time.time(), "name": name, "generation": generation, "kind": kind, "text": text}
        if logs:
            longest = max(_OTHER_LOGS // len(logs), _LEAST_LOG)
            others = {other: _end(lines, longest) for other, lines in logs.items() if other != rank and lines}
            entry |= {"rank": rank, "log": list(logs.get(rank, ())), "logs": others}
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
        replace_file(self._file, history[len(history) // 2 :].partition(b"\n")[2])


def _end(lines: Sequence[str], longest: int) -> list[str]:
    """The last lines, of so many characters together at most."""
    last_lines: list[str] = []
    for line in reversed(lines):
        longest -= len(line)
        if longest < 0:
            break
        last_lines.append(line)
    return last_lines[::-1]


def _print(text: str) -> None:
    """To the journal, where there is one: it may be full, or gone."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)
