"""A checkpoint that lies in a folder of the head: a local disk, a mounted share, a hub's cache."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from pathlib import Path

from headfirst.weights.checkpoint_check import check_checkpoint
from headfirst.weights.files import list_files, publish
from headfirst.weights.manifest import MANIFEST
from headfirst.weights.source import Listing, RemoteFile, wanted


class PathSource:
    """One folder. Shards are hard-linked where they lie on the same file system, and copied otherwise."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def list(self) -> Listing:
        """The folder's files; InputError or NotReadyError where it is no whole checkpoint.

        `pinned` changes when a name, a size or a modification time does.
        """
        check_checkpoint(self._folder)
        names = [name for name in list_files(self._folder) if wanted(name) and name != MANIFEST]
        stats = {name: (self._folder / name).stat() for name in names}
        seen = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats.items()]
        files = [RemoteFile(name, stat.st_size, None) for name, stat in stats.items()]
        return Listing(hashlib.sha256(repr(seen).encode()).hexdigest(), files)

    def links_into(self, target: Path) -> bool:
        """Whether the shards can be hard-linked into `target` (it need not exist yet), taking no space."""
        existing = target
        while not existing.exists():
            existing = existing.parent
        return existing.stat().st_dev == self._folder.stat().st_dev

    def get(self, listing: Listing, target: Path) -> None:
        """Link or copy what is not there yet; a copy keeps its original's modification time."""
        if target.resolve() == self._folder.resolve():
            return
        for file in listing.files:
            original = (self._folder / file.name).resolve()
            copy = target / file.name
            if copy.is_file() and _same(original.stat(), copy.stat()):
                continue
            part = copy.with_name(f".{copy.name}.part")
            part.parent.mkdir(parents=True, exist_ok=True)
            part.unlink(missing_ok=True)
            if not (file.name.endswith(".safetensors") and _link(original, part)):
                _copy(original, part)
            publish(part, copy)


def _same(original: os.stat_result, copy: os.stat_result) -> bool:
    return (original.st_size, original.st_mtime_ns) == (copy.st_size, copy.st_mtime_ns)


def _link(original: Path, copy: Path) -> bool:
    try:
        os.link(original, copy)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
            return False
        raise
    return True


def _copy(original: Path, copy: Path) -> None:
    with original.open("rb") as source, copy.open("wb") as out:
        shutil.copyfileobj(source, out, 4 * 1024 * 1024)
        out.flush()
        os.fsync(out.fileno())
    stat = original.stat()
    os.utime(copy, ns=(stat.st_atime_ns, stat.st_mtime_ns))
