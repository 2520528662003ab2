"""What takes minutes to make, kept in a folder until its recipe changes; several processes may ask."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

_HERE = Path(__file__).parent


def recipe_key(*data: Path) -> str:
    """Changes with any code of this package and with the data files or folders."""
    files = {path for name in data for path in _files(name)} | set(_HERE.glob("*.py"))
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"\0{path.relative_to(_HERE.parent)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


@contextmanager
def only_one(folder: Path, name: str) -> Iterator[None]:
    """One process at a time: another that makes the same waits here, and then finds it made."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def kept(folder: Path, name: str, key: str, suffix: str, make: Callable[[Path, Path], None]) -> Path:
    """The file `NAME-KEY.SUFFIX` in `folder`; `make(file, scratch folder)` writes it where it is missing.

    It appears only when it is complete. Files of the same name with another key are then removed.
    """
    done = folder / f"{name}-{key}{suffix}"
    with only_one(folder, name):
        if done.exists():
            return done
        scratch = folder / f".{name}.tmp"
        shutil.rmtree(scratch, ignore_errors=True)  # of a build that was killed
        scratch.mkdir()
        try:
            make(scratch / done.name, scratch)
            (scratch / done.name).replace(done)
        finally:
            shutil.rmtree(scratch)
        for old in folder.glob(f"{name}-*{suffix}"):
            if old != done:
                old.unlink()
    return done


def _files(path: Path) -> Iterable[Path]:
    if path.is_file():
        return [path]
    return [file for file in path.rglob("*") if file.is_file() and file.suffix != ".pyc"]
