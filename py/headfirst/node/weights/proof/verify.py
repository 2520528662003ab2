"""Prove a checkpoint folder against its manifest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from headfirst.common.errors import NotReadyError
from headfirst.common.untrusted import UntrustedError, json_document, json_object
from headfirst.node.weights.files import contained, is_in_place, notes_folder, write_whole
from headfirst.node.weights.progress import WeightsProgress
from headfirst.node.weights.proof.deep_check import check_samples
from headfirst.node.weights.proof.hash_cache import FileRecord, HashCache
from headfirst.node.weights.proof.hashing import fingerprint
from headfirst.node.weights.proof.manifest import HASH_THREADS, Manifest, load

_WRONG = "wrong.json"
"""In our notes: files that `verify` found wrong, with the xxh3 to come, until their repair is reported."""


def changed_files(folder: Path, manifest: Manifest) -> list[str]:
    """The files that are not known to be the manifest's. Reads no file."""
    cache = HashCache(folder)
    return [name for name, record in manifest.files.items() if not _same(cache.get(name), record)]


def faults(
    folder: Path, manifest: Manifest, progress: WeightsProgress, *, deep: bool = False
) -> Mapping[str, str]:
    """What is wrong, by file name; empty where all is well.

    A file that is unchanged since it was hashed is not read again, unless `deep`.
    """
    cache = HashCache(folder)

    def fault(item: tuple[str, FileRecord]) -> str | None:
        name, record = item
        try:
            path = contained(folder, name)
        except NotReadyError:
            return "a symbolic link that leads out of the folder"
        if not path.is_file():
            return "missing"
        if path.stat().st_size != record.size:
            return f"{path.stat().st_size} bytes instead of {record.size}"
        known = None if deep else cache.get(name)
        if known is None:
            known = fingerprint(path, progress.add)
            if _same(known, record):
                cache.put(name, record)  # equal bytes have the equal sha256, whoever computed it
            else:
                cache.forget(name)
        else:
            progress.add(record.size)
        return None if _same(known, record) else "its hash is not the manifest's"

    progress.total = manifest.size
    with ThreadPoolExecutor(HASH_THREADS) as pool:
        reasons = zip(manifest.files, pool.map(fault, manifest.files.items()), strict=True)
        return {name: why for name, why in reasons if why}


def _same(cached: FileRecord | None, record: FileRecord) -> bool:
    return cached is not None and (cached.size, cached.xxh3) == (record.size, record.xxh3)


def repaired_files(folder: Path, manifest: Manifest) -> list[str]:
    """The files that `verify` found wrong and that are the manifest's now."""
    still = changed_files(folder, manifest)
    return [
        name
        for name, xxh3 in _found_wrong(folder).items()
        if name in manifest.files and manifest.files[name].xxh3 == xxh3 and name not in still
    ]


def _found_wrong(folder: Path) -> dict[str, object]:
    path = notes_folder(folder) / _WRONG
    try:
        return json_object(json_document(path.read_bytes(), what=_WRONG), what=_WRONG)
    except (FileNotFoundError, UntrustedError):
        return {}


def verify(folder: Path, *, deep: bool = False) -> Manifest:
    """Raise NotReadyError, naming files, unless `folder` is complete and every file is its manifest's.

    `deep` reads every file, and converts samples of the FP8 source again by other means.
    """
    manifest = load(folder)
    if manifest is None:
        raise NotReadyError("there is no complete checkpoint here", where=str(folder))
    with WeightsProgress("verify") as progress:
        wrong = dict(faults(folder, manifest, progress, deep=deep))
    if deep:
        wrong |= check_samples(folder)
    if wrong:
        if not is_in_place(folder):  # else it is somebody's to repair
            noted = _found_wrong(folder) | {name: manifest.files[name].xxh3 for name in wrong}
            write_whole(notes_folder(folder) / _WRONG, json.dumps(noted).encode())
        listed = "; ".join(f"{name}: {why}" for name, why in list(wrong.items())[:3])
        raise NotReadyError(
            f"{len(wrong)} file(s) differ from the manifest: {listed}",
            where=str(folder),
            hint="Run `deploy up` again: it copies these files again.",
        )
    return manifest
