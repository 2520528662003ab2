"""The manifest of a checkpoint folder: size and hashes of every file.

It is written last, so a folder is complete if and only if it has one; it travels with the copy, and every
node proves its files against it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from os import cpu_count
from pathlib import Path, PurePosixPath

from headfirst.errors import NotReadyError
from headfirst.weights.files import write_whole
from headfirst.weights.hash_cache import FileRecord, HashCache
from headfirst.weights.hashing import fingerprint
from headfirst.weights.progress import Progress

MANIFEST = "headfirst-manifest.json"
HASH_THREADS = min(8, cpu_count() or 1)


@dataclass(frozen=True)
class Manifest:
    """`files` by relative path; `origin` says what the folder was made from and is no part of the digest."""

    files: Mapping[str, FileRecord]
    origin: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """One hash of all names, sizes and xxh3: equal if and only if the checkpoints are equal."""
        lines = [f"{record.xxh3} {record.size} {name}\n" for name, record in sorted(self.files.items())]
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(record.size for record in self.files.values())

    def dumps(self) -> bytes:
        """The manifest as it is kept and sent."""
        files = {name: asdict(record) for name, record in sorted(self.files.items())}
        return (json.dumps({"origin": dict(self.origin), "files": files}, indent=1) + "\n").encode()


def parse(data: bytes, where: str) -> Manifest:
    """Read a manifest; NotReadyError where it is none, or names a path outside its folder."""
    try:
        document = json.loads(data)
        files = {
            name: FileRecord(int(entry["size"]), str(entry["xxh3"]), entry["sha256"])
            for name, entry in document["files"].items()
        }
        origin = {str(key): str(value) for key, value in document["origin"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotReadyError("this is not a manifest of a checkpoint", where=where) from error
    for name in files:
        check_name(name, where)
    return Manifest(files, origin)


def check_name(name: str, where: str) -> None:
    """NotReadyError where `name` is no relative path that stays inside its folder, or is hidden."""
    path = PurePosixPath(name)
    if path.is_absolute() or not path.parts or any(part.startswith(".") for part in path.parts):
        raise NotReadyError(f"a file outside its folder is named: {name}", where=where)


def load(folder: Path) -> Manifest | None:
    """The manifest of `folder`, or None where the folder is absent or not complete."""
    path = folder / MANIFEST
    return parse(path.read_bytes(), str(path)) if path.is_file() else None


def save(folder: Path, manifest: Manifest) -> None:
    """Mark `folder` complete."""
    write_whole(folder / MANIFEST, manifest.dumps())


def discard(folder: Path) -> None:
    """Mark `folder` not complete, before anything in it is changed."""
    (folder / MANIFEST).unlink(missing_ok=True)


def build(
    folder: Path, names: Sequence[str], origin: Mapping[str, str], progress: Progress | None = None
) -> Manifest:
    """Hash these files (only what the cache does not know) and return their manifest, not yet saved."""
    cache = HashCache(folder)

    def record(name: str) -> FileRecord:
        known = cache.get(name)
        if known:
            seen(known.size)
            return known
        return cache.put(name, fingerprint(folder / name, seen))

    def seen(count: int) -> None:
        if progress:
            progress.add(count)

    if progress:
        progress.total = sum((folder / name).stat().st_size for name in names)
    with ThreadPoolExecutor(HASH_THREADS) as pool:
        return Manifest(dict(zip(names, pool.map(record, names), strict=True)), origin)
