"""What the supervisor did and why: one JSON object a line in a file of this node, and in its journal."""

from __future__ import annotations

import json
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
        print(f"{name}: {text}", file=sys.stderr, flush=True)
        entry = {"at": time.time(), "name": name, "generation": generation, "kind": kind, "text": text}
        entry |= {"rank": rank, "log": list(log)} if log else {}
        with self._lock:
            try:
                self._append(json.dumps(entry) + "\n")
            except OSError as error:  # a full disk must not end the supervision
                print(f"{self._file}: {error}", file=sys.stderr, flush=True)

    def _append(self, line: str) -> None:
        self._file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._file.touch(mode=0o600)
        if self._file.stat().st_size > _LONGEST:
            kept = self._file.read_text(encoding="utf-8").splitlines(keepends=True)
            part = self._file.with_suffix(".part")
            part.touch(mode=0o600)
            part.write_text("".join(kept[len(kept) // 2 :]), encoding="utf-8")
            part.replace(self._file)
        with self._file.open("a", encoding="utf-8") as file:
            file.write(line)
