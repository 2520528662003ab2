"""A program: write the files of a chat page as a tar archive with a manifest to the standard output.

It runs in a container of the page's image that has the data and nothing else (Python 3.8 or newer, standard
library alone). So SQLite may carry out what is beside a database, and a link leads nowhere.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import resource
import shutil
import sqlite3
import stat
import sys
import tarfile
import tempfile
import time
import typing as t

MANIFEST = "manifest.json"
FORMAT = 1
FREE = "{:.0f} MB are free, and {:.0f} MB are needed"
# Folders of a restore.
RESTORED, REPLACED = ".headfirst-restored", ".headfirst-replaced"
# What can be fetched or computed again, and those.
_LEFT_OUT = ("cache", RESTORED, REPLACED)
# Open WebUI's own databases. What else looks like one is a user's upload, and is copied as it is.
_DATABASES = ("webui.db", "vector_db/chroma.sqlite3", "vector_db/milvus.db")
_LOGS = tuple(path + end for path in _DATABASES for end in ("-wal", "-shm", "-journal"))
_MAGIC = b"SQLite format 3\0"
_LOCK_SECONDS = 30
# Constraints of a table are expressions, which can take any time.
_CPU_SECONDS = 60
_CPU_BYTES_PER_SECOND = 8 << 20
_MEMORY_BYTES = 4 << 30
# What every program can still handle, also below another folder.
_DEEPEST, _LONGEST = 64, 2048
# What a file gives that was removed, or that a link or a file took the place of.
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)

Entry = t.Dict[str, t.Any]


def main(data: str, free: str, image: str, reason: str) -> None:
    """Copy the folder `data`; `free` are the bytes that the archive may have."""
    os.chdir(data)
    sizes = dict(_files())
    total = sum(sizes.values())
    databases = sum(size for path, size in sizes.items() if path in _DATABASES + _LOGS)
    for wanted, there in ((total, int(free)), (databases, shutil.disk_usage(tempfile.gettempdir()).free)):
        if there < wanted:
            sys.exit(FREE.format(there / 1e6, wanted / 1e6))
    seconds = _CPU_SECONDS + total // _CPU_BYTES_PER_SECOND
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    # A journal states how large the database was: it cannot be larger than all that is here.
    resource.setrlimit(resource.RLIMIT_FSIZE, (total + (1 << 20), total + (1 << 20)))
    with tarfile.open(
        fileobj=sys.stdout.buffer, mode="w|", format=tarfile.PAX_FORMAT, dereference=True
    ) as tar:
        entries = {path: _add(tar, path) for path in sizes if path not in _LOGS}
        manifest = {
            "format": FORMAT,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "image": image,
            "reason": reason,
            "files": {path: entry for path, entry in entries.items() if entry},
        }
        text = json.dumps(manifest, indent=1, sort_keys=True).encode()
        info = tarfile.TarInfo(MANIFEST)
        info.size, info.mode = len(text), 0o600
        tar.addfile(info, io.BytesIO(text))


def _files() -> t.Iterator[t.Tuple[str, int]]:
    """Path and size of each regular file; no link is followed."""
    for top, folders, names in os.walk(".", onerror=_raise_unless_gone):
        if top == ".":
            folders[:] = [name for name in folders if name not in _LEFT_OUT]
        folders.sort()
        if top.count("/") > _DEEPEST or len(os.fsencode(top)) > _LONGEST:
            sys.exit("the path {} is too long for a restore".format(ascii(top[:80])))
        for name in sorted(names):
            path = os.path.normpath(os.path.join(top, name))
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                status = os.lstat(path)
                if stat.S_ISREG(status.st_mode):
                    yield path, status.st_size


def _raise_unless_gone(error: OSError) -> None:
    if error.errno not in _GONE:
        raise error


def _add(tar: tarfile.TarFile, path: str) -> t.Optional[Entry]:
    """Add one file; return its size and hash, None where it was removed meanwhile."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        _raise_unless_gone(error)
        return None
    with contextlib.ExitStack() as stack:
        file: t.IO[bytes] = stack.enter_context(os.fdopen(descriptor, "rb"))
        info = tar.gettarinfo(arcname=path, fileobj=file)
        if not info.isreg():
            return None
        if path in _DATABASES and os.pread(descriptor, len(_MAGIC), 0) == _MAGIC:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            file = stack.enter_context(open(_whole(path, folder), "rb"))
            info.size = os.fstat(file.fileno()).st_size
        hashed = Hashing(file)
        tar.addfile(info, t.cast(t.IO[bytes], hashed))
        return {"size": info.size, "sha256": hashed.digest.hexdigest()}


def _whole(path: str, folder: str) -> str:
    """The path of a copy in `folder` of a database as of its last transaction; it is checked."""
    copy = os.path.join(folder, "copy")
    source = sqlite3.connect(path, timeout=_LOCK_SECONDS, isolation_level=None)
    target = sqlite3.connect(copy)
    try:
        for database in (source, target):
            database.execute("PRAGMA trusted_schema=OFF")
        source.execute("BEGIN")
        source.execute("SELECT 1 FROM sqlite_master").fetchone()  # backup() itself would wait for ever
        source.backup(target)
        (answer,) = target.execute("PRAGMA quick_check").fetchone()
    except sqlite3.Error as error:
        answer = str(error)
    finally:
        target.close()
        source.close()
    if answer != "ok":
        sys.exit("the database {} cannot be copied: {}".format(path, ascii(answer)))
    return copy


class Hashing:
    """Reads a file and hashes what is read."""

    def __init__(self, file: t.IO[bytes]) -> None:
        self._file, self.digest = file, hashlib.sha256()

    def read(self, size: int) -> bytes:
        """The next `size` bytes, or what is left."""
        data = self._file.read(size)
        self.digest.update(data)
        return data


if __name__ == "__main__":
    main(*sys.argv[1:])
