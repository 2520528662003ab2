"""What hubs sent about models, kept by commit in the user's cache folder: safe to delete.

A file has the answers about one commit as they came; who reads them validates them as if they came now.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headfirst.common.errors import InputError
from headfirst.common.state_files import replace_file
from headfirst.control.paths import cache_dir

MOST_BYTES = 256 << 20  # of all files; the ones that no plan read for the longest time are removed
_MOST_ANSWER_BYTES = 64 << 20
_MOST_ANSWERS_BYTES = 192 << 20
_PIN = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
# No folder of the user, no file there, and what zipfile raises for a file that is not what `write` wrote.
_NO_ANSWERS = (
    InputError,
    OSError,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
)


@dataclass(frozen=True)
class Cache:
    """The answers about one model on one hub. A `pin` names a content: a commit, or a hash of all hashes."""

    hub: str  # its address without a password
    id: str

    def read(self, pin: str) -> dict[str, bytes]:
        """Answer by name; empty where there are none, or they are damaged."""
        try:
            path = self._path(pin, "zip")
            with zipfile.ZipFile(path) as archive:
                sizes = [entry.file_size for entry in archive.infolist()]
                if max(sizes, default=0) > _MOST_ANSWER_BYTES or sum(sizes) > _MOST_ANSWERS_BYTES:
                    return {}
                answers = {entry.filename: archive.read(entry) for entry in archive.infolist()}
            os.utime(path)
        except _NO_ANSWERS:
            return {}
        return answers

    def write(self, pin: str, answers: Mapping[str, bytes]) -> None:
        """Store the answers. What cannot be stored is read from the hub again: it costs time only."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for name, data in answers.items():
                archive.writestr(name, data)
        self._store(pin, "zip", buffer.getvalue())

    def pin(self, revision: str) -> str | None:
        """What the revision named when it was last read; None where it never was."""
        try:
            text = self._path(revision, "ref").read_text(encoding="utf-8")
        except (InputError, OSError, UnicodeError):
            return None
        return text if _PIN.fullmatch(text) else None

    def set_pin(self, revision: str, pin: str) -> None:
        """Store what the revision names."""
        if self.pin(revision) != pin:
            self._store(revision, "ref", pin.encode())

    def _path(self, name: str, kind: str) -> Path:
        """A file whose name has nothing of what is sent; InputError where the user has no such folder."""
        key = hashlib.sha256("\0".join((self.hub, self.id, name)).encode()).hexdigest()
        return cache_dir("hub") / f"{key}.{kind}"

    def _store(self, name: str, kind: str, data: bytes) -> None:
        if len(data) > MOST_BYTES:
            return
        with contextlib.suppress(InputError, OSError):
            path = self._path(name, kind)
            replace_file(path, data)
            _prune(path.parent)


def _prune(folder: Path) -> None:
    files = sorted(
        (path for path in folder.iterdir() if path.is_file()), key=lambda path: path.stat().st_mtime_ns
    )
    total = sum(path.stat().st_size for path in files)
    for path in files:
        if total <= MOST_BYTES:
            return
        total -= path.stat().st_size
        path.unlink(missing_ok=True)
