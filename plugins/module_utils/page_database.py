"""A whole copy of a SQLite database that a container may write (Python 3.8 or newer, standard library).

SQLite carries out what is beside a database: a journal that was left names a file that is removed, as the
user who opens the database. So SQLite never opens the original. Its bytes are copied under SQLite's own locks
(https://www.sqlite.org/lockingv3.html, https://www.sqlite.org/walformat.html), and the copy is opened by a
process that can reach nothing else.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import shutil
import sqlite3
import struct
import time
import typing as t
from pathlib import Path

from ansible_collections.headfirst.serving.plugins.module_utils.files_beneath import open_file

MAGIC = b"SQLite format 3\0"
LOGS = ("-wal", "-shm", "-journal")
LOCK_SECONDS = 30
CHECK_SECONDS = 60
_CHECKED_IN_A_SECOND = 8 << 20  # bytes
# Bytes that connections lock: of the database, and of its -shm.
_PENDING, _RESERVED, _SHARED, _SHARED_BYTES = 0x40000000, 0x40000001, 0x40000002, 510
_CHECKPOINT, _READER = 121, 124
_READ_VERSION = 19  # offset in the header; 2 is a database with a write-ahead log
_FLOCK = "hhlli"
_COPY = "copy"
_NOBODY = 65534
_MESSAGE = 300
_INDEX = 1 << 20  # a small log has an index larger than itself


class BackupError(Exception):
    """Why a backup cannot be made or used, as one sentence without a full stop."""


def snapshot(folder: int, name: str, database: t.IO[bytes], scratch: Path) -> Path:
    """A copy in `scratch`, which is empty, of the open `database` as of its last transaction; it is checked.

    `folder` is the descriptor of its folder and `name` its name there. Whoever uses it waits with their
    commits. BackupError where it is damaged or stays locked.
    """
    target = scratch / _COPY
    with contextlib.ExitStack() as held:
        _share(database, name)
        if os.pread(database.fileno(), 1, _READ_VERSION) == b"\2":
            _copy_with_log(held, folder, name, database, target)
        else:
            _copy_with_journal(held, folder, name, database, target)
    size = sum(path.stat().st_size for path in scratch.iterdir())
    problem = _in_child(lambda path: _settle(path, size), scratch)
    if problem:
        raise BackupError("the database {} cannot be copied: {}".format(name, problem))
    return target


def _share(database: t.IO[bytes], name: str) -> None:
    """Lock as a reader does: nothing is written into the database until it is closed."""
    _lock(database, fcntl.LOCK_SH, _PENDING, 1, name)
    _lock(database, fcntl.LOCK_SH, _SHARED, _SHARED_BYTES, name)
    fcntl.lockf(database, fcntl.LOCK_UN, 1, _PENDING)


def _copy_with_journal(
    held: contextlib.ExitStack, folder: int, name: str, database: t.IO[bytes], target: Path
) -> None:
    journal = open_file(folder, name + "-journal")
    if journal is not None:
        held.enter_context(journal)
        # A journal of a transaction that goes on is not hot, and neither is an empty or a blank one.
        if os.pread(journal.fileno(), 1, 0) not in (b"", b"\0") and not _reserved(database):
            with _created(Path(str(target) + "-journal")) as copy:
                shutil.copyfileobj(journal, copy)
                # SQLite reads the name of a file to remove from a journal's last bytes.
                copy.write(bytes(64))
    with _created(target) as copy:
        shutil.copyfileobj(database, copy)


def _copy_with_log(
    held: contextlib.ExitStack, folder: int, name: str, database: t.IO[bytes], target: Path
) -> None:
    index = open_file(folder, name + "-shm", os.O_RDWR)
    if index is not None:
        held.enter_context(index)
        # Nobody writes the log into the database or begins it again; what is appended meanwhile is left out.
        _lock(index, fcntl.LOCK_EX, _CHECKPOINT, 1, name)
        _lock(index, fcntl.LOCK_SH, _READER, 1, name)
    with _created(target) as copy:
        shutil.copyfileobj(database, copy)
    log = open_file(folder, name + "-wal")
    if log is not None:
        with log, _created(Path(str(target) + "-wal")) as copy:
            shutil.copyfileobj(log, copy)
    opened = None if index else open_file(folder, name + "-shm")
    if opened is not None:
        opened.close()
        raise BackupError("the database {} was opened while it was copied: repeat the command".format(name))


def _lock(file: t.IO[bytes], kind: int, start: int, length: int, name: str) -> None:
    end = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.lockf(file, kind | fcntl.LOCK_NB, length, start)
            return
        except (BlockingIOError, PermissionError):
            if time.monotonic() >= end:
                raise BackupError(
                    "the database {} is locked by a process that does not end its transaction".format(name)
                ) from None
            time.sleep(0.05)


def _reserved(database: t.IO[bytes]) -> bool:
    """Whether a process has a transaction open that writes."""
    ask = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, _RESERVED, 1, 0)
    answer = fcntl.fcntl(database, fcntl.F_GETLK, ask)
    return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)


def _created(path: Path) -> t.IO[bytes]:
    return os.fdopen(os.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _settle(path: str, size: int) -> str:
    """Let SQLite end or undo what its journal or log has, and check the result; the problem, "" for none."""
    # A journal states how large the database was: it cannot be larger than all that was copied.
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + _INDEX, size + _INDEX))
    # Constraints of a table are expressions, which can take any time.
    seconds = CHECK_SECONDS + size // _CHECKED_IN_A_SECOND
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    database = sqlite3.connect(path)
    try:
        database.execute("PRAGMA trusted_schema=OFF")
        database.execute("PRAGMA temp_store=MEMORY")
        (answer,) = database.execute("PRAGMA quick_check").fetchone()
        (busy, _log, _done) = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        database.close()
    if busy:
        return "its log cannot be written into it"
    return "" if answer == "ok" else "it is damaged: {}".format(answer)


def _in_child(work: t.Callable[[str], str], scratch: Path) -> str:
    """What `work` returns for the path of the copy; root confines its process to `scratch`, as nobody."""
    reader, writer = os.pipe()
    confined = os.geteuid() == 0
    if confined:
        for path in (scratch, *scratch.iterdir()):
            os.chown(str(path), _NOBODY, _NOBODY)
    child = os.fork()
    if child == 0:
        answer = "the process that checks it failed"
        try:
            if confined:
                os.chroot(str(scratch))
                os.chdir("/")
                os.setgroups([])
                os.setgid(_NOBODY)
                os.setuid(_NOBODY)
            answer = work("/" + _COPY if confined else str(scratch / _COPY)) or "ok"
        except (sqlite3.Error, OSError) as error:
            answer = str(error)
        finally:
            os.write(writer, answer.encode("utf-8", "replace"))
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read().decode("utf-8", "replace")
    os.waitpid(child, 0)
    if answer == "ok":
        return ""
    shown = "".join(char if char.isprintable() else " " for char in answer[:_MESSAGE])
    return shown or "the process that checks it was killed, or took too long"
