"""A checkpoint that is in a folder of the head: a local disk, a mounted share, a hub's cache."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path
from typing import IO

from headfirst.common.checkpoint_files import is_checkpoint_file
from headfirst.common.errors import NotReadyError
from headfirst.node.weights.fetch.partial_file import PartialFile
from headfirst.node.weights.fetch.source import Listing, RemoteFile, Source, checked_listing
from headfirst.node.weights.files import CHUNK, contained, list_files, open_contained, publish
from headfirst.node.weights.proof.checkpoint_check import check_checkpoint


class PathSource(Source):
    """One folder. Shards are hard-linked where they are on the same file system, and copied otherwise.

    Links to files of the folder itself, or of the hub's cache that it is in, are followed; others refused.
    """

    def __init__(self, folder: str, _revision: str = "") -> None:
        self._folder = Path(folder)

    def list(self) -> Listing:
        """The folder's files; InputError or NotReadyError where it is no whole checkpoint.

        `pinned` changes when a name, a size or a modification time does.
        """
        stats = {name: self._stat(name) for name in list_files(self._folder) if is_checkpoint_file(name)}
        check_checkpoint(self._folder)
        seen = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats.items()]
        pinned = hashlib.sha256(repr(seen).encode()).hexdigest()
        entries = [(name, stat.st_size, None) for name, stat in stats.items()]
        return checked_listing(pinned, entries, str(self._folder))

    def links_into(self, target: Path) -> bool:
        """Whether the shards can be hard-linked into `target` (it need not exist yet), taking no space."""
        existing = target
        while not existing.exists():
            existing = existing.parent
        return existing.stat().st_dev == self._folder.stat().st_dev

    def place(self, file: RemoteFile, target: Path) -> bool:
        """Link a shard; a copy is right where it has its original's size and modification time."""
        copy = target / file.name
        with open_contained(self._folder, file.name) as original:
            if copy.is_file() and _same(os.fstat(original.fileno()), copy.stat()):
                return True
            if not file.name.endswith(".safetensors"):
                return False
            part = copy.with_name(f".{copy.name}.link")
            part.parent.mkdir(parents=True, exist_ok=True)
            part.unlink(missing_ok=True)
            if not _link(original, part):
                return False
        publish(part, copy)
        return True

    def pull(self, file: RemoteFile, listing: Listing, part: PartialFile) -> None:
        """Copy; the copy has its original's modification time."""
        path = self._folder / file.name
        with open_contained(self._folder, file.name) as original:
            stat = os.fstat(original.fileno())
            original.seek(part.size)
            while chunk := original.read(CHUNK):
                part.write(chunk)
        if not _same(stat, path.stat()):
            raise NotReadyError("it was changed while it was read", where=str(path), hint="Run again.")
        os.utime(part.path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    def _stat(self, name: str) -> os.stat_result:
        """NotReadyError where the file is a link that leads out of the folder, or is no regular file."""
        path = contained(self._folder, name)
        if not path.is_file():
            raise NotReadyError("this is not a regular file, or its link has no target", where=str(path))
        return path.stat()


def _same(original: os.stat_result, copy: os.stat_result) -> bool:
    return (original.st_size, original.st_mtime_ns) == (copy.st_size, copy.st_mtime_ns)


def _link(original: IO[bytes], copy: Path) -> bool:
    try:
        # The open file itself; Python follows a link only where it is given a descriptor, too.
        os.link(
            f"/proc/self/fd/{original.fileno()}", copy, src_dir_fd=original.fileno(), follow_symlinks=True
        )
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
            return False
        raise
    return True
