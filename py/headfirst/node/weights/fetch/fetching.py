"""Bring a checkpoint to this machine, file by file, and hand on each file as soon as it is proven."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import Event

from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import FOLDER, ON_NODES

from headfirst.common.errors import InputError, NotReadyError
from headfirst.node.weights.fetch.fetch_file import part_path, when_it_answers
from headfirst.node.weights.fetch.fetch_run import Fetched, FetchRun
from headfirst.node.weights.fetch.path_source import PathSource
from headfirst.node.weights.fetch.source import Listing, Source
from headfirst.node.weights.files import (
    STATE_FOLDER,
    claim,
    list_files,
    refuse_links,
    require_space,
)
from headfirst.node.weights.progress import WeightsProgress
from headfirst.node.weights.proof import manifest as manifests
from headfirst.node.weights.proof.checkpoint_check import ADAPTER_CONFIG, CONFIG, check_checkpoint
from headfirst.node.weights.proof.hashing import FileHash
from headfirst.node.weights.proof.manifest import MANIFEST, Manifest
from headfirst.node.weights.proof.proofs import Proofs

_CLIENTS = "headfirst.node.weights.fetch"
MOST_AT_ONCE = 8
"""Files that one machine fetches at a time."""


@dataclass(frozen=True)
class FetchRequest:
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
        return self.source == FOLDER.name and Path(self.model).resolve() == folder.resolve()


class Fetching:
    """A checkpoint to be made of `target`: asked for when this is made, and brought after `begin`.

    Setting `stopped` ends it with NotReadyError; it is also set when a file fails.
    """

    def __init__(self, request: FetchRequest, target: Path, stopped: Event | None = None) -> None:
        self._target = target
        self._stopped = stopped or Event()
        self.source = _open(request)
        self.listing = when_it_answers(self.source.list, self._stopped)
        self.sizes = {file.name: file.size for file in self.listing.files}
        """Bytes of the files by relative path."""
        self.sha256 = {file.name: file.sha256 for file in self.listing.files if file.sha256}
        """What the source lists, in hex, by relative path."""
        self.in_place = request.is_for(target)
        self.made_from = {**request.origin, "pinned": self.listing.pinned}
        """The origin part of the manifest."""
        self.fetched = Fetched(target, self.made_from)
        """What was proven of just these files, whether they are still there or not."""
        if not any(file.name in (CONFIG, ADAPTER_CONFIG) for file in self.listing.files):
            raise InputError(f"{request.model} holds no {CONFIG}: it is not a model that an engine serves")

    def missing_bytes(self, without: Container[str] = ()) -> int:
        """What still has to come onto the disk, but for files it can be `without`."""
        if isinstance(self.source, PathSource) and self.source.links_into(self._target):
            return 0
        missing = 0
        for file in self.listing.files:
            part = part_path(file, self.listing, self._target)
            there = max(_size(self._target / file.name), _size(part))
            missing += 0 if file.name in without else max(0, file.size - there)
        return missing

    def begin(
        self,
        proofs: Proofs,
        *,
        without: Container[str] = (),
        arrived: Callable[[str, FileHash], object] = lambda _name, _proof: None,
        seen: Callable[[int], object] = lambda _count: None,
    ) -> FetchRun:
        """Prepare the target to take files.

        `proofs` are those of the target. Known files that it can be `without` are not brought again.
        `arrived` is called, from several threads, for each file once it is there and proven; `seen` with the
        bytes of all files as they come, or are known to be there.
        """
        if not self.in_place:
            claim(self._target)
            _remove_others(self.listing, self._target)
        else:
            refuse_links(self._target / STATE_FOLDER)
        return FetchRun(
            self.source,
            self.listing,
            self._target,
            proofs,
            self.fetched,
            without=without,
            in_place=self.in_place,
            arrived=arrived,
            seen=seen,
            stopped=self._stopped,
        )


def fetch(request: FetchRequest, target: Path) -> tuple[Manifest, bool]:
    """Make `target` the checkpoint that is asked for. Returns its manifest and whether anything was done.

    A second call continues where the first one stopped.
    """
    fetching = Fetching(request, target)
    require_space(target, fetching.missing_bytes(), "fetch the model")
    before = manifests.load(target)
    with WeightsProgress("fetch", sum(fetching.sizes.values())) as progress:
        run = fetching.begin(Proofs(target), seen=progress.add)
        manifest = Manifest(run.bring_all(MOST_AT_ONCE), fetching.made_from)
    check_checkpoint(target)
    if manifest != before:
        manifests.save(target, manifest)
    return manifest, run.changed or manifest != before


def _open(request: FetchRequest) -> Source:
    if request.source not in ON_NODES:
        raise InputError(f"nothing here fetches from {request.source!r}", hint=f"--from {'|'.join(ON_NODES)}")
    module, _colon, name = ON_NODES[request.source].client.partition(":")
    try:
        # Imported here because a node has at most the client that it needs.
        client: Callable[[str, str], Source] = getattr(import_module(f"{_CLIENTS}.{module}"), name)
    except ModuleNotFoundError as error:
        raise NotReadyError(
            f"the client of {request.source} is not installed here ({error.name} is missing)",
            hint=f"Install it: pip install 'headfirst-node[{request.source}]', or set node_tools_extras.",
        ) from error
    return client(request.model, request.revision)


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
