"""Bring a checkpoint to this machine, file by file, and hand on each file as soon as it is proven."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from headfirst.errors import InputError, NotReadyError
from headfirst.weights import manifest as manifests
from headfirst.weights.checkpoint_check import CONFIG, check_checkpoint
from headfirst.weights.fetch_file import part_path, when_it_answers
from headfirst.weights.fetch_run import FetchRun
from headfirst.weights.files import STATE_FOLDER, claim, list_files, require_space
from headfirst.weights.hash_cache import FileRecord
from headfirst.weights.hashing import FileHash
from headfirst.weights.manifest import MANIFEST, Manifest
from headfirst.weights.path_source import PathSource
from headfirst.weights.progress import Progress
from headfirst.weights.source import Listing, Source
from headfirst.weights.verify import unchanged

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

    def is_for(self, folder: Path) -> bool:
        """Whether it asks to use `folder` as it is, in place."""
        return self.source == "path" and Path(self.model).resolve() == folder.resolve()


def is_current(request: Request, target: Path) -> bool:
    """Whether `target` holds what is asked for, whole and untouched. Reads no weights, asks no hub."""
    manifest = manifests.load(target)
    if manifest is None or not _answers(manifest, request) or not unchanged(target, manifest):
        return False
    return (
        request.source != "path" or PathSource(Path(request.model)).list().pinned == manifest.origin["pinned"]
    )


def bf16_copy(listing: Listing) -> int:
    """Bytes that a BF16 copy of an FP8 checkpoint takes: two for each one of it."""
    return 2 * sum(file.size for file in listing.files)


def fetch(
    request: Request,
    target: Path,
    *,
    extra_bytes: Callable[[Listing], int] | None = None,
    gone: Mapping[str, FileRecord] | None = None,
    arrived: Callable[[str, FileHash], object] = lambda _name, _proof: None,
    progress: Progress | None = None,
    stopped: Event | None = None,
    threads: int = 8,
) -> tuple[Manifest, bool]:
    """Make `target` the checkpoint that is asked for. Returns its manifest and whether anything was done.

    A second call continues where the first one stopped. `extra_bytes` is the space that a conversion needs
    beside the files; `gone` are files that were proven here and given up since: they are not brought again,
    and while there are any no manifest is saved. `arrived` is called, from several threads, for each file in
    `target` once it is proven: config.json and the index first, then small files, then the shards in the
    index's order. Setting `stopped` ends it with NotReadyError; it is also set when a file fails.
    """
    stopped = stopped or Event()
    source = _open(request)
    listing = when_it_answers(source.list, stopped)
    if not any(file.name == CONFIG for file in listing.files):
        raise InputError(f"{request.model} holds no {CONFIG}: it is not a model that an engine serves")
    _require_space(source, listing, target, gone or {}, extra_bytes)
    before = manifests.load(target)
    in_place = request.is_for(target)
    if not in_place:
        claim(target)
        _remove_others(listing, target)
    pinned = {**request.origin, "pinned": listing.pinned}
    with progress or Progress("fetch") as shown:
        run = FetchRun(
            source,
            listing,
            target,
            known=before if before and before.origin == pinned else None,
            gone=gone or {},
            in_place=in_place,
            arrived=arrived,
            progress=shown,
            stopped=stopped,
        )
        records = run.bring_all(threads)
    manifest = Manifest(records, pinned)
    if gone:
        return manifest, run.changed
    check_checkpoint(target)
    if manifest != before:
        manifests.save(target, manifest)
    return manifest, run.changed or manifest != before


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


def _answers(manifest: Manifest, request: Request) -> bool:
    return request.origin.items() <= manifest.origin.items()


def _require_space(
    source: Source,
    listing: Listing,
    target: Path,
    gone: Mapping[str, FileRecord],
    extra_bytes: Callable[[Listing], int] | None,
) -> None:
    missing = 0
    if not (isinstance(source, PathSource) and source.links_into(target)):
        for file in listing.files:
            if file.name not in gone:
                there = max(_size(target / file.name), _size(part_path(file, listing, target)))
                missing += max(0, file.size - there)
    if extra_bytes:
        require_space(target, missing + extra_bytes(listing), "fetch the model and convert it to BF16")
    else:
        require_space(target, missing, "fetch the model")


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _remove_others(listing: Listing, target: Path) -> None:
    """Remove what is no part of the checkpoint, and unfinished files of other versions of it."""
    others = set(list_files(target)) - {file.name for file in listing.files} - {MANIFEST}
    if others:
        manifests.discard(target)
    for name in others:
        (target / name).unlink()
    parts = {part_path(file, listing, target) for file in listing.files}
    for path in (target / STATE_FOLDER / "parts").glob("*"):
        if path not in parts:
            path.unlink()
