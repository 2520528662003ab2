"""How far a command is: for the job that started it (a file), or for a person at a terminal (one line)."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from headfirst.node.weights.files import gigabytes

PROGRESS_FILE = "HEADFIRST_PROGRESS_FILE"
"""Environment variable: the file to keep one JSON object in, `{"done", "total", "unit", "note", "alive"}`."""
RESULT_FILE = "HEADFIRST_RESULT_FILE"
"""Environment variable: the file for the command's final JSON object."""
_INTERVAL_S = 0.5


class WeightsProgress:
    """Bytes done of `total`, reported at most twice a second and at the end. Safe to use from threads."""

    def __init__(self, note: str, total: int = 0) -> None:
        self.note = note
        self.total = total
        self.done = 0
        self.alive = 0
        """Any number that changes while the work moves on, also where others do it."""
        self._file = os.environ.get(PROGRESS_FILE)
        self._terminal = sys.stderr.isatty()
        self._next = 0.0
        self._lock = threading.Lock()

    def __enter__(self) -> WeightsProgress:
        self._report()
        return self

    def __exit__(self, *_: object) -> None:
        self._report()
        if self._terminal:
            sys.stderr.write("\n")

    def add(self, count: int) -> None:
        """Count `count` more bytes."""
        with self._lock:
            self.done += count
            if time.monotonic() >= self._next:
                self._report()

    def _report(self) -> None:
        self._next = time.monotonic() + _INTERVAL_S
        if self._file:
            state = {"done": self.done, "total": self.total, "unit": "bytes", "note": self.note}
            state["alive"] = self.alive
            with suppress(OSError):  # a full disk must not end the work, which reports it itself
                _replace(Path(self._file), state)
        if self._terminal:
            sys.stderr.write(f"\r\033[K{self.note}: {gigabytes(self.done)} of {gigabytes(self.total)}")
            sys.stderr.flush()


def write_result(result: dict[str, object]) -> None:
    """Hand the command's final JSON object to the job that started it, if one did."""
    if path := os.environ.get(RESULT_FILE):
        _replace(Path(path), result)


def _replace(path: Path, document: dict[str, object]) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_text(json.dumps(document) + "\n")
    part.replace(path)
