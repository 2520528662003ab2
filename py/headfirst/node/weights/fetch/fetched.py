"""What was proven of one listing so far, also by earlier runs, and of files that were given up since."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

from headfirst.node.weights.files import STATE_FOLDER, write_whole
from headfirst.node.weights.proof import manifest as manifests
from headfirst.node.weights.proof.hash_cache import FileRecord
from headfirst.node.weights.proof.manifest import Manifest


class Fetched:
    """Records by relative path: a manifest that grows, `.headfirst/fetched.json`. Safe to use from threads.

    `made_from` is the origin part of the manifest; what was noted of another one counts no more.
    """

    def __init__(self, folder: Path, made_from: Mapping[str, str]) -> None:
        self._file = folder / STATE_FOLDER / "fetched.json"
        self._made_from = made_from
        self._lock = threading.Lock()
        self.records: dict[str, FileRecord] = {}
        if self._file.is_file():
            noted = manifests.parse(self._file.read_bytes(), str(self._file))
            self.records = dict(noted.files) if noted.origin == made_from else {}

    def put(self, name: str, record: FileRecord) -> None:
        """Record that `name` matches the source, on disk too."""
        with self._lock:
            if self.records.get(name) != record:
                self.records[name] = record
                write_whole(self._file, Manifest(self.records, self._made_from).dumps())
