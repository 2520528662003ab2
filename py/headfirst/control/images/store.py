"""What takes minutes to make, kept in a folder until its recipe changes; several processes may ask."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_HERE = Path(__file__).parent
_UNUSED_S = 24 * 3600


def recipe_key(*data: Path, settings: str = "") -> str:
    """Changes with the code that builds images, with the data files or folders, and with the settings."""
    code = (path for path in sorted(_HERE.glob("*.py")) if path.name != "recipes.py")
    files = [(path.name, path) for path in code]
    files += [file for path in data for file in _files(path)]
    digest = hashlib.sha256(settings.encode())
    for name, path in files:
        digest.update(f"\0{name}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


@contextmanager
def only_one(folder: Path, name: str) -> Iterator[None]:
    """One process at a time: another that makes the same waits here, and then finds it made."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def built(folder: Path, name: str, key: str, suffix: str, make: Callable[[Path, Path], None]) -> Path:
    """The file `NAME-KEY.SUFFIX` in `folder`; `make(file, scratch folder)` writes it where it is missing.

    It appears only when it is complete. Files of the same name with another key, which nobody used for a day,
    are then removed: another release may be sending one to its hosts.
    """
    done = folder / f"{name}-{key}{suffix}"
    with only_one(folder, name):
        if done.exists():
            done.touch()
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
            if old != done and time.time() - old.stat().st_mtime > _UNUSED_S:
                old.unlink()
    return done


def _files(path: Path) -> list[tuple[str, Path]]:
    """The file, or the files of the folder, by name."""
    if path.is_file():
        return [(path.name, path)]
    files = (file for file in sorted(path.rglob("*")) if file.is_file() and file.suffix != ".pyc")
    return [(str(file.relative_to(path)), file) for file in files]
