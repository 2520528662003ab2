"""Hashes known without reading a file again: its size, mtime and inode are as when it was hashed."""

from __future__ import annotations

import json
import threading
from pathlib import Path

from headfirst.weights.files import STATE_FOLDER, write_whole


class HashCache:
    """sha256 by relative path for one folder, kept in `.headfirst/hashes.json`. Safe to use from threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / STATE_FOLDER / "hashes.json"
        self._lock = threading.Lock()
        self._known: dict[str, list[object]] = {}
        if self._file.is_file():
            try:
                self._known = json.loads(self._file.read_text())
            except ValueError:  # only a cache: without it everything is hashed again
                self._known = {}

    def get(self, name: str) -> str | None:
        """The hash of `name`, or None where the file is gone or differs from what was hashed."""
        entry = self._known.get(name)
        if entry is None or entry[:-1] != self._identity(name):
            return None
        return str(entry[-1])

    def put(self, name: str, sha256: str) -> None:
        """Remember the hash of `name` as the file is now, on disk too."""
        with self._lock:
            self._known[name] = [*self._identity(name), sha256]
            write_whole(self._file, json.dumps(self._known).encode())

    def _identity(self, name: str) -> list[int]:
        try:
            stat = (self._folder / name).stat()
        except FileNotFoundError:
            return []
        return [stat.st_size, stat.st_mtime_ns, stat.st_ino]
