"""Bring a checkpoint to this machine and prove it: listed, enough space, downloaded, hashed, whole."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headfirst.errors import InputError, NotReadyError
from headfirst.weights import manifest as manifests
from headfirst.weights.checkpoint_check import CONFIG, check_checkpoint
from headfirst.weights.files import claim, list_files, require_space
from headfirst.weights.hash_cache import FileRecord, HashCache
from headfirst.weights.hashing import hash_file
from headfirst.weights.manifest import MANIFEST, Manifest
from headfirst.weights.path_source import PathSource
from headfirst.weights.progress import Progress
from headfirst.weights.source import Listing, RemoteFile, Source
from headfirst.weights.verify import faults, unchanged

SOURCES = ("huggingface", "modelscope", "path")


@dataclass(frozen=True)
class Request:
    """What is asked for. `model` is a hub's owner/name or a folder; `revision` may be ""."""

    source: str
    model: str
    revision: str = ""

    @property
    def origin(self) -> dict[str, str]:
        """How the manifest of the result names it."""
        return {"source": self.source, "model": self.model, "revision": self.revision}


def is_current(request: Request, target: Path) -> bool:
    """Whether `target` holds what is asked for, whole and untouched. Reads no weights, asks no hub."""
    manifest = manifests.load(target)
    if manifest is None or not _answers(manifest, request) or not unchanged(target, manifest):
        return False
    return (
        request.source != "path" or PathSource(Path(request.model)).list().pinned == manifest.origin["pinned"]
    )


def fetch(request: Request, target: Path, *, will_convert: bool = False) -> tuple[Manifest, bool]:
    """Make `target` the checkpoint that is asked for. Returns its manifest and whether anything was done.

    A second call continues where the first one stopped. `will_convert` asks for space for a BF16 copy too.
    """
    source = _open(request)
    listing = source.list()
    before = manifests.load(target)
    wrong = _wrong(target, before) if before else {}
    if before and _answers(before, request) and not wrong and before.origin["pinned"] == listing.pinned != "":
        return before, False
    if not any(file.name == CONFIG for file in listing.files):
        raise InputError(f"{request.model} holds no {CONFIG}: it is not a model that an engine serves")
    in_place = request.source == "path" and Path(request.model).resolve() == target.resolve()
    if not in_place:
        claim(target)
        for name in wrong:  # a client that trusts size and time would keep it
            (target / name).unlink(missing_ok=True)
    manifests.discard(target)
    _require_space(source, listing, target, will_convert)
    with _watched(listing, target):
        source.get(listing, target)
    if not in_place:
        _remove_others(listing, target)
    manifest = _proven(request, source, listing, target)
    manifests.save(target, manifest)
    return manifest, bool(wrong) or before != manifest


def _open(request: Request) -> Source:
    # The clients are imported here because a node has at most the one it needs.
    try:
        if request.source == "huggingface":
            from headfirst.weights.huggingface_source import HuggingFaceSource

            return HuggingFaceSource(request.model, request.revision)
        if request.source == "modelscope":
            from headfirst.weights.modelscope_source import ModelScopeSource

            return ModelScopeSource(request.model, request.revision)
    except ModuleNotFoundError as error:
        raise NotReadyError(
            f"the client of {request.source} is not installed here ({error.name} is missing)",
            hint=f"Install it: pip install 'headfirst-node[{request.source}]', or set node_tools_extras.",
        ) from error
    return PathSource(Path(request.model))


def _wrong(target: Path, manifest: Manifest) -> Mapping[str, str]:
    with Progress("verify") as progress:
        return faults(target, manifest, progress)


def _answers(manifest: Manifest, request: Request) -> bool:
    return request.origin.items() <= manifest.origin.items()


def _require_space(source: Source, listing: Listing, target: Path, will_convert: bool) -> None:
    total = sum(file.size for file in listing.files)
    linked = isinstance(source, PathSource) and source.links_into(target)
    missing = 0 if linked else max(0, total - _disk_bytes(target))
    if will_convert:  # a BF16 value has two bytes for each byte of FP8
        require_space(target, missing + 2 * total, "fetch the model and convert it to BF16")
    else:
        require_space(target, missing, "fetch the model")


@contextmanager
def _watched(listing: Listing, target: Path) -> Iterator[None]:
    """Report what has arrived, by looking: the clients' own progress differs from version to version."""
    total = sum(file.size for file in listing.files)
    over = threading.Event()
    with Progress("fetch", total) as progress:

        def look() -> None:
            while not over.wait(0.5):
                progress.set(min(total, _disk_bytes(target)))

        watcher = threading.Thread(target=look, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()
        progress.set(total)


def _disk_bytes(folder: Path) -> int:
    """Bytes on disk below `folder`, with the clients' unfinished files, which may be sparse."""
    count = 0
    for path in folder.rglob("*"):
        try:
            stat = path.lstat()
        except FileNotFoundError:  # renamed by the client between listing and looking
            continue
        count += min(stat.st_size, stat.st_blocks * 512)
    return count


def _remove_others(listing: Listing, target: Path) -> None:
    for name in set(list_files(target)) - {file.name for file in listing.files} - {MANIFEST}:
        (target / name).unlink()


def _proven(request: Request, source: Source, listing: Listing, target: Path) -> Manifest:
    """Hash everything; what differs from what a hub says is fetched once more, then refused."""
    manifest, wrong = _hashed(request, listing, target)
    if wrong and request.source != "path":
        for name in wrong:
            (target / name).unlink(missing_ok=True)
        source.get(listing, target)
        manifest, wrong = _hashed(request, listing, target)
    if wrong:
        raise NotReadyError(
            f"{len(wrong)} file(s) are not as {request.source} says: {', '.join(wrong[:3])}",
            where=str(target),
            hint="Run again; if it stays so, the source, a mirror or a proxy on the way is at fault.",
        )
    check_checkpoint(target)
    return manifest


def _hashed(request: Request, listing: Listing, target: Path) -> tuple[Manifest, list[str]]:
    cache = HashCache(target)
    progress = Progress("hash", sum(file.size for file in listing.files))

    def record(file: RemoteFile) -> FileRecord | None:
        if not (target / file.name).is_file():
            return None
        known = cache.get(file.name)
        if known and (known.sha256 or not file.sha256):
            progress.add(known.size)
            return known
        proof = hash_file(target / file.name, progress.add, with_sha256=file.sha256 is not None)
        return cache.put(file.name, proof.record)

    with progress, ThreadPoolExecutor(manifests.HASH_THREADS) as pool:
        found = list(zip(listing.files, pool.map(record, listing.files), strict=True))
    wrong = [
        file.name
        for file, known in found
        if known is None or known.size != file.size or file.sha256 not in (None, known.sha256)
    ]
    records = {file.name: known for file, known in found if known}
    return Manifest(records, {**request.origin, "pinned": listing.pinned}), wrong
