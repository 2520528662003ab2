"""The manifest of a checkpoint folder: size and hashes of every file.

It is written last, so a folder is complete if and only if it has one; it travels with the copy, and every
node proves its files against it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from os import cpu_count
from pathlib import Path
from typing import Any

from headfirst.common.checkpoint_files import MANIFEST as MANIFEST
from headfirst.common.errors import NotReadyError
from headfirst.common.untrusted import (
    UntrustedError,
    file_listing,
    hex_digest,
    integer,
    json_document,
    json_object,
    line,
    shown,
)
from headfirst.node.weights.files import contained, is_in_place, notes_folder, write_whole
from headfirst.node.weights.progress import WeightsProgress
from headfirst.node.weights.proof.hash_cache import FileRecord, HashCache
from headfirst.node.weights.proof.hashing import fingerprint

LAYERS, WHOLE = "layers", "whole"
"""In the origin of a copy with some of the layers only: which, as in 0-30, and the whole copy's digest."""
HASH_THREADS = min(8, cpu_count() or 1)
_DEPTH = 3
_ORIGIN_LIMIT = 32


@dataclass(frozen=True)
class Manifest:
    """`files` by relative path; `origin` is what the folder was made from and is no part of the digest."""

    files: Mapping[str, FileRecord]
    origin: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """One hash of all names, sizes and xxh3: equal if and only if the checkpoints are equal."""
        lines = [f"{record.xxh3} {record.size} {name}\n" for name, record in sorted(self.files.items())]
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    @property
    def whole(self) -> str:
        """The digest of the whole checkpoint that this copy, or a part of it, was made from."""
        return self.origin.get("converted_from") or self.origin.get(WHOLE) or self.digest

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
        document = json_object(json_document(data, what="the manifest", depth=_DEPTH), what="the manifest")
        entries = json_object(document.get("files"), what="the list of files")
        names = check_names(entries)
        return Manifest(
            {name: parse_record(entries[name]) for name in names}, parse_origin(document.get("origin"))
        )
    except UntrustedError as error:
        raise NotReadyError(
            f"this is not a manifest of a checkpoint: {error.what}",
            where=where,
            hint="Remove that file, then run again: it is written again.",
        ) from error


def parse_record(entry: Any) -> FileRecord:
    """One file's size and hashes, from JSON; UntrustedError where they are none."""
    fields = json_object(entry, what="the record of a file")
    sha256 = fields.get("sha256")
    return FileRecord(
        integer(fields.get("size"), what="the size of a file"),
        hex_digest(fields.get("xxh3"), what="the xxh3 of a file", digits=32),
        None if sha256 is None else hex_digest(sha256, what="the sha256 of a file", digits=64),
    )


def parse_origin(document: Any) -> dict[str, str]:
    """What a folder was made from, from JSON; UntrustedError where it is no short text by short name."""
    fields = json_object(document, what="the origin", limit=_ORIGIN_LIMIT)
    return {
        line(key, what="a name of the origin"): line(value, what="a value of the origin", limit=4096)
        for key, value in fields.items()
    }


def check_names(names: Iterable[Any], where: str | None = None) -> list[str]:
    """Names of a checkpoint's files; UntrustedError where one leads out of it, clashes or is hidden."""
    listing = file_listing(names, where=where)
    for name in listing:
        if any(part.startswith(".") for part in name.split("/")):
            raise UntrustedError(f"the file list names a hidden file: {shown(name)}", where=where)
    return listing


def manifest_file(folder: Path) -> Path:
    """The manifest of `folder`: inside it, or with the notes of a folder that is used in place."""
    return (notes_folder(folder) if is_in_place(folder) else folder) / MANIFEST


def load(folder: Path) -> Manifest | None:
    """The manifest of `folder`, or None where the folder is absent or not complete."""
    path = manifest_file(folder)
    return parse(path.read_bytes(), str(path)) if path.is_file() else None


def save(folder: Path, manifest: Manifest) -> bool:
    """Mark `folder` complete; returns whether that is news."""
    path = manifest_file(folder)
    if not path.is_symlink() and load(folder) == manifest:
        return False
    write_whole(path, manifest.dumps())
    return True


def discard(folder: Path) -> None:
    """Mark `folder` not complete, before anything in it is changed."""
    manifest_file(folder).unlink(missing_ok=True)


def build(
    folder: Path, names: Sequence[str], origin: Mapping[str, str], progress: WeightsProgress | None = None
) -> Manifest:
    """Hash these files (only what the cache does not have) and return their manifest, not yet saved."""
    cache = HashCache(folder)
    seen = progress.add if progress else lambda _count: None

    def record(name: str) -> FileRecord:
        known = cache.get(name)
        if known:
            seen(known.size)
            return known
        return cache.put(name, fingerprint(contained(folder, name), seen))

    if progress:
        progress.total = sum((folder / name).stat().st_size for name in names)
    with ThreadPoolExecutor(HASH_THREADS) as pool:
        return Manifest(dict(zip(names, pool.map(record, names), strict=True)), origin)
