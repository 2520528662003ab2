"""Files of a checkpoint folder: which ones count, writing them whole or not at all, free space."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from headfirst.errors import InputError, NotReadyError

STATE_FOLDER = ".headfirst"
"""Our notes inside a checkpoint folder: caches and unfinished files. Hidden, so no part of the checkpoint."""

CHUNK = 4 * 1024 * 1024
_HEADROOM = 64 * 1024 * 1024


def list_files(folder: Path) -> list[str]:
    """The files below `folder`, sorted, as relative POSIX paths; what is hidden does not count."""
    found = []
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [
            (Path(root) / name).relative_to(folder).as_posix() for name in names if not name.startswith(".")
        ]
    return sorted(found)


def claim(folder: Path) -> None:
    """Make `folder` ours, or refuse: what is no part of the checkpoint is later removed from it.

    Raises InputError where it holds somebody's files.
    """
    if folder.is_dir() and any(folder.iterdir()) and not (folder / STATE_FOLDER).is_dir():
        raise InputError(
            "the folder is not empty and was not made by headfirst",
            where=str(folder),
            hint="Name another folder, remove this one, or use it in place with model_source=path.",
        )
    (folder / STATE_FOLDER).mkdir(parents=True, exist_ok=True)


def write_whole(path: Path, data: bytes) -> None:
    """Write `data` so that `path` is either the old file or all of the new one, also after a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    publish(part, path)


def publish(part: Path, path: Path) -> None:
    """Rename `part`, already flushed to disk by its writer, to `path`, and flush the folder entry."""
    part.replace(path)
    entry = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(entry)
    finally:
        os.close(entry)


def require_space(folder: Path, needed: int, purpose: str) -> None:
    """Raise NotReadyError unless the disk of `folder` (it need not exist yet) has `needed` bytes free."""
    existing = folder
    while not existing.exists():
        existing = existing.parent
    free = shutil.disk_usage(existing).free
    if needed and needed + _HEADROOM > free:
        raise NotReadyError(
            f"no space to {purpose}: it needs {gigabytes(needed)}, {gigabytes(free)} are free",
            where=str(folder),
            hint="Free space there, or set weights_dir to a larger disk.",
        )


def gigabytes(count: int) -> str:
    """A byte count for people, in GB (10⁹) or, below one, MB."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
