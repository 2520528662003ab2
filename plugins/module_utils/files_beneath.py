"""Files below a folder that somebody else may write meanwhile: no link is followed (Python 3.8 or newer)."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import typing as t

Parts = t.Tuple[str, ...]
"""A path below the folder, as its components."""

_OPEN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# What every program can still handle, also below another folder.
_DEEPEST = 64
_LONGEST = 2048  # bytes of a path
_SHOWN = 80
# What a file gives that was removed, or that a link or a file took the place of.
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


@contextlib.contextmanager
def folder_beneath(root: int, parts: Parts) -> t.Iterator[int]:
    """The folder `parts` below the open folder `root`, as a descriptor. OSError where one part is a link."""
    descriptor = os.dup(root)
    try:
        for part in parts:
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | _OPEN, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


def open_file(folder: int, name: str, flags: int = os.O_RDONLY) -> t.Optional[t.IO[bytes]]:
    """The regular file `name` of the open folder, to read; None where it is missing or something else.

    `flags` is os.O_RDWR for locks that need a descriptor for writing.
    """
    with missing_suppressed():
        # Opening a device or a pipe has effects; what takes the file's place after this is refused below.
        if stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            descriptor = os.open(name, flags | _OPEN, dir_fd=folder)
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                return os.fdopen(descriptor, "rb")
            os.close(descriptor)
    return None


def files_beneath(root: int, left_out: t.Collection[str] = ()) -> t.Iterator[t.Tuple[Parts, int]]:
    """Path and size of each regular file below the open folder `root`, those of a folder before its folders.

    `left_out` are names in `root` itself. A folder that became a link or was removed meanwhile has no files.
    OSError where a path is too long to be used as one.
    """
    pending: t.List[Parts] = [()]
    while pending:
        parts = pending.pop()
        if len(parts) > _DEEPEST or len(os.fsencode("/".join(parts))) > _LONGEST:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), "/".join(parts)[:_SHOWN])
        files, folders = [], []
        with missing_suppressed(), folder_beneath(root, parts) as folder:
            for name in sorted(os.listdir(folder)):
                with missing_suppressed():
                    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode):
                        folders.append((*parts, name))
                    elif stat.S_ISREG(status.st_mode):
                        files.append(((*parts, name), status.st_size))
        if not parts:
            folders = [path for path in folders if path[0] not in left_out]
        yield from files
        pending.extend(reversed(folders))


@contextlib.contextmanager
def missing_suppressed() -> t.Iterator[None]:
    """Go on where a file was removed, or is a link where a file or a folder was."""
    try:
        yield
    except OSError as error:
        if error.errno not in _GONE:
            raise
