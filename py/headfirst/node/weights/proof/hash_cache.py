"""What is known of files without reading them again: size, mtime and inode are as when they were hashed."""

from __future__ import annotations

import json
import threading
from dataclasses import astuple, dataclass
from pathlib import Path

from headfirst.common.errors import NotReadyError
from headfirst.common.untrusted import UntrustedError, json_document, json_object
from headfirst.node.weights.files import contained, notes_folder, write_whole


@dataclass(frozen=True)
class FileRecord:
    """One file: size in bytes, xxh3 (128 bits) in hex, and the hub's sha256 in hex where it has one."""

    size: int
    xxh3: str
    sha256: str | None = None


class HashCache:
    """Records by relative path for one folder, kept in `.headfirst/hashes.json`. Safe to use from threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = notes_folder(folder) / "hashes.json"
        self._lock = threading.Lock()
        self._known: dict[str, list[object]] = {}
        if self._file.is_file():
            try:
                document = json_document(self._file.read_bytes(), what="the cache of hashes")
                self._known = json_object(document, what="the cache of hashes")
            except UntrustedError:  # only a cache: without it everything is hashed again
                self._known = {}

    def get(self, name: str) -> FileRecord | None:
        """The record of `name`, or None where the file is gone or differs from what was hashed."""
        match self._known.get(name):
            case [*identity, int(size), str(xxh3), str() | None as sha256] if (
                identity and identity == self._identity(name)
            ):
                return FileRecord(size, xxh3, sha256)
        return None

    def put(self, name: str, record: FileRecord) -> FileRecord:
        """Remember the record of `name` as the file is now, on disk too; returns it."""
        with self._lock:
            self._known[name] = [*self._identity(name), *astuple(record)]
            write_whole(self._file, json.dumps(self._known).encode())
        return record

    def forget(self, name: str) -> None:
        """Have `name` hashed again: it is not what it was taken for."""
        with self._lock:
            if self._known.pop(name, None) is not None:
                write_whole(self._file, json.dumps(self._known).encode())

    def _identity(self, name: str) -> list[int]:
        """Empty where the file is gone, or is a link to a file of somebody else."""
        try:
            stat = contained(self._folder, name).stat()
        except (FileNotFoundError, NotReadyError):
            return []
        return [stat.st_mtime_ns, stat.st_ino, stat.st_size]
