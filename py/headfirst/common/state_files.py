"""Small files of state that several runs may write at the same time and that a killed run must not damage."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Other processes that open the same folder so wait until this closes. The lock ends with the process."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def read_file(path: Path) -> str | None:
    """The text; None where the file is missing or blank, as an interrupted copy or a full disk leaves it."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return text if text.strip("\0 \n") else None


def text_of(path: Path) -> str:
    """The text of a person's file, with its own ends of lines and bytes that are no UTF-8."""
    return path.read_bytes().decode(errors="surrogateescape")


def rewrite_file(path: Path, text: str) -> None:
    """Write `text_of` a person's file as a whole: links to it, its mode, owner and attributes stay."""
    target = path.resolve()
    replace_file(target, text.encode(errors="surrogateescape"), like=target)


def replace_file(path: Path, content: str | bytes, mode: int = 0o600, *, like: Path | None = None) -> None:
    """Write `path` as a whole: a reader, also after a crash, finds the old content or the new.

    `like` is a file whose mode, owner and attributes it gets.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    part = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        if like is not None:
            status = like.stat()
            os.chown(part, status.st_uid, status.st_gid)
            shutil.copystat(like, part)
            os.utime(part)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
