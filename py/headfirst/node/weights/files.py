"""Files of a checkpoint folder: which ones count, writing them whole or not at all, the disk they need."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Container, Mapping
from pathlib import Path
from typing import IO

from headfirst.common.errors import InputError, NotReadyError

STATE_FOLDER = ".headfirst"
"""Our notes inside a checkpoint folder: caches and unfinished files. Hidden, so no part of the checkpoint."""

_IN_PLACE = ".headfirst-in-place"
"""Beside the link by which somebody's folder is served: our notes of it, since the folder is not ours."""

CHUNK = 4 * 1024 * 1024
_HEADROOM = 64 * 1024 * 1024
SHARDS_IN_FLIGHT = 8
"""FP8 shards on a disk at a time where each is deleted once converted; plan/weights/duration.py agrees."""


def notes_beside(link: Path) -> Path:
    """Where the notes of a folder are that is used in place by `link`."""
    return link.parent / _IN_PLACE / link.name


def is_in_place(folder: Path) -> bool:
    """Whether `folder` is a link of ours to somebody's folder, in which we write nothing."""
    return folder.is_symlink() and notes_beside(folder).is_dir()


def notes_folder(folder: Path) -> Path:
    """Where our notes of a checkpoint folder are."""
    return notes_beside(folder) if is_in_place(folder) else folder / STATE_FOLDER


def release(link: Path) -> None:
    """Use the folder in place no more: remove the link, then the notes. The folder is not touched."""
    link.unlink()
    shutil.rmtree(notes_beside(link))


def list_files(folder: Path) -> list[str]:
    """The files below `folder`, sorted, as relative POSIX paths; what is hidden does not count."""
    paths = []
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths += [
            (Path(root) / name).relative_to(folder).as_posix() for name in names if not name.startswith(".")
        ]
    return sorted(paths)


def contained(folder: Path, name: str) -> Path:
    """folder/name, to be read; NotReadyError where symbolic links lead out of `folder`.

    A hub's cache keeps the files of its snapshots in a folder `blobs`: links to there are followed.
    """
    path = folder / name
    _refuse_outside(folder, name, Path(os.path.realpath(path)))
    return path


def open_contained(folder: Path, name: str) -> IO[bytes]:
    """The same, open: whoever may write in `folder` could put a link there after its path was proven."""
    file = os.fdopen(os.open(folder / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    try:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise NotReadyError("this is not a regular file", where=str(folder / name))
        _refuse_outside(folder, name, Path(f"/proc/self/fd/{file.fileno()}").readlink())
    except BaseException:
        file.close()
        raise
    return file


def _refuse_outside(folder: Path, name: str, real: Path) -> None:
    base = Path(os.path.realpath(folder))
    homes = [base, base.parents[1] / "blobs"] if base.parent.name == "snapshots" else [base]
    if not any(real.is_relative_to(home) for home in homes):
        raise NotReadyError(
            f"{name} is a symbolic link that leads out of the model folder, to {real}",
            where=str(folder),
            hint="Replace the link by the file it leads to.",
        )


def refuse_links(folder: Path) -> None:
    """NotReadyError where anything below `folder` is a symbolic link: what is written would go elsewhere."""
    for root, folders, names in os.walk(folder):
        for name in (*folders, *names):
            if (path := Path(root) / name).is_symlink():
                raise NotReadyError(
                    "a folder that headfirst writes holds a symbolic link",
                    where=str(path),
                    hint="Remove the link, then run again: what is missing is fetched.",
                )


def claim(folder: Path) -> None:
    """Make `folder` ours, or refuse: what is no part of the checkpoint is later removed from it.

    A link of ours to somebody's folder is replaced by a folder. Raises InputError where it holds somebody's
    files, NotReadyError where it holds symbolic links.
    """
    if is_in_place(folder):
        release(folder)
    if folder.is_dir() and any(folder.iterdir()) and not (folder / STATE_FOLDER).is_dir():
        raise InputError(
            "the folder is not empty and was not made by headfirst",
            where=str(folder),
            hint="Name another folder, remove this one, or use it in place with model_source=path.",
        )
    refuse_links(folder)
    (folder / STATE_FOLDER).mkdir(parents=True, exist_ok=True)


def write_whole(path: Path, data: bytes) -> None:
    """Write `data` so that `path` is either the old file or all of the new one, also after a power cut."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)  # it may be a link
    with part.open("xb") as file:
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


def require_transfer_space(
    verb: str, sizes: Mapping[str, int], missing: int, folder: Path, target: Path | None, keep_source: bool
) -> None:
    """NotReadyError unless the disk of `folder` has room to bring files, and convert them into `target`.

    `sizes` are bytes of these files, `missing` those that still come. `verb`: how they come, for the message.
    """
    if target is None:
        require_space(folder, missing, f"{verb} the model")
        return
    if not keep_source:
        missing = min(missing, SHARDS_IN_FLIGHT * max(sizes.values(), default=0))
    needed = missing + bf16_missing(sizes, target)
    require_space(folder, needed, f"{verb} the model and convert it to BF16")


def bf16_missing(sizes: Mapping[str, int], target: Path, growth: float = 2) -> int:
    """Bytes that `target` still needs, where each byte of the source becomes `growth` bytes.

    A BF16 value has two for each one of FP8. What a format takes beyond that is known, and asked for, when
    config.json is here (Conversion.plan).
    """
    return max(0, int(growth * sum(sizes.values())) - disk_bytes(target, sizes))


def disk_bytes(folder: Path, names: Container[str]) -> int:
    """Bytes on disk of `names` below `folder`, and of what is hidden: hard links once, holes not."""
    seen = {}
    for path in folder.rglob("*"):
        try:
            stat = path.lstat()
        except FileNotFoundError:  # renamed between listing and looking
            continue
        name = path.relative_to(folder).as_posix()
        if name not in names and not name.startswith("."):
            continue
        seen[stat.st_ino] = min(stat.st_size, stat.st_blocks * 512)
    return sum(seen.values())
