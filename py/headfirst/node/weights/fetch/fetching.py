"""What is to be fetched: asked of the source, and compared with what an earlier run has proven."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import Event

from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import FOLDER, ON_NODES

from headfirst.common.errors import InputError, NotReadyError
from headfirst.node.weights.fetch.fetch_file import part_path, when_it_answers
from headfirst.node.weights.fetch.path_source import PathSource
from headfirst.node.weights.fetch.source import Source
from headfirst.node.weights.files import STATE_FOLDER, write_whole
from headfirst.node.weights.proof import manifest as manifests
from headfirst.node.weights.proof.checkpoint_check import ADAPTER_CONFIG, CONFIG
from headfirst.node.weights.proof.hash_cache import FileRecord
from headfirst.node.weights.proof.manifest import Manifest

_CLIENTS = "headfirst.node.weights.fetch"


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


class Fetched:
    """What was proven of one listing, also by earlier runs, and of files that were removed since.

    Records by relative path in a manifest that grows, `.headfirst/fetched.json`. `made_from` is its origin
    part; records of another one are discarded. Safe to use from threads.
    """

    def __init__(self, folder: Path, made_from: Mapping[str, str]) -> None:
        self._file = folder / STATE_FOLDER / "fetched.json"
        self._made_from = made_from
        self._lock = threading.Lock()
        self.records: dict[str, FileRecord] = {}
        if self._file.is_file():
            noted = manifests.parse(self._file.read_bytes(), str(self._file))
            self.records = dict(noted.files) if noted.origin == made_from else {}

    def put(self, name: str, record: FileRecord) -> None:
        """Record that `name` matches the source, on disk too."""
        with self._lock:
            if self.records.get(name) != record:
                self.records[name] = record
                write_whole(self._file, Manifest(self.records, self._made_from).dumps())


class Fetching:
    """A checkpoint to be made of `target`: asked for when this is made, and brought by a FetchRun.

    Setting `stopped` ends that with NotReadyError; it is also set when a file fails.
    """

    def __init__(self, request: FetchRequest, target: Path, stopped: Event | None = None) -> None:
        self.target = target
        self.stopped = stopped or Event()
        self.source = _open(request)
        self.listing = when_it_answers(self.source.list, self.stopped)
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
        if isinstance(self.source, PathSource) and self.source.links_into(self.target):
            return 0
        missing = 0
        for file in self.listing.files:
            part = part_path(file, self.listing, self.target)
            there = max(_size(self.target / file.name), _size(part))
            missing += 0 if file.name in without else max(0, file.size - there)
        return missing


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
