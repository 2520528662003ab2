"""Describe a model on a hub from its config.json, its file list and its shards' headers, not its weights.

The list of files names the content: Hugging Face's by its commit, ModelScope's by each file's sha256. What is
read of that content is in the cache for the next plan (cache.py).
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from urllib.parse import quote

from headfirst.common.errors import HeadfirstError, InputError, NotReadyError
from headfirst.common.safetensors_file import LENGTH_BYTES, StoredTensor, header_length, read_header
from headfirst.common.untrusted import (
    UntrustedError,
    file_listing,
    integer,
    json_document,
    shown,
)
from headfirst.control.checkpoints import silence
from headfirst.control.checkpoints.cache import Cache
from headfirst.control.checkpoints.chat_template import has_template
from headfirst.control.checkpoints.folder import (
    INDEX,
    MAX_JSON_BYTES,
    MODULES,
    QUANTIZATION,
    index_names,
)
from headfirst.control.checkpoints.hub_requests import Hub, HubUnreachableError, NoPartsError, Requests
from headfirst.decide.model.catalogue_entries import RELEASED
from headfirst.decide.model.checkpoint import Checkpoint, Shard
from headfirst.decide.model.config import WeightFiles, from_config

_T = TypeVar("_T")
_COMMIT = re.compile("[0-9a-f]{40}")
_LISTING = "listing"
_PARALLEL_READS = 8
MAX_LISTING_BYTES = 32 << 20
# Of all shards together. Of 210,000 tensors, as in the largest checkpoints, they have 30 MB.
MAX_HEADER_BYTES = 64 << 20


@dataclass(frozen=True)
class Sent:
    """What a hub sent about a model; None where it does not state it.

    `quantization` is the content of hf_quant_config.json; `content` names what was read, a commit or a hash
    of all hashes; `created` is the month in which the repository was made.
    """

    checkpoint: Checkpoint
    config: dict[str, Any]
    quantization: dict[str, Any] | None
    content: str | None
    created: str | None


def read_hub(hub: Hub, id: str, *, revision: str | None = None) -> Sent:
    """Read what the hub has of `id`. HubUnreachableError without a network; InputError when the hub does
    not have the model, or requires a token."""
    return _read(hub, id, revision, lambda session: _parse(session, revision))


def describe_stored(hub: Hub, id: str, *, revision: str | None, note: str) -> Checkpoint | None:
    """Describe `id` by what the hub sent for an earlier plan; None where the cache has nothing of it.

    `note` gets what was read.
    """
    session = _stored(hub, id, revision)
    if session is None:
        return None
    pin = str(session.pin)[:12]
    note = f"{note}; the model is described by what {hub.name} sent for an earlier plan ({pin})."
    try:
        return _parse(session, revision).checkpoint.model_copy(update={"note": note})
    except HeadfirstError:  # damaged, or of a version that kept other answers
        return None


def hub_json(hub: Hub, id: str, file: str, *, revision: str | None) -> dict[str, Any]:
    """A JSON file of the repository `id`. Raises as read_hub does."""
    return _read(hub, id, revision, lambda session: session.json(file))


def hub_files(
    hub: Hub,
    id: str,
    choose: Callable[[Mapping[str, int]], Sequence[str]],
    *,
    limit: int,
    revision: str | None,
) -> dict[str, bytes]:
    """The contents of files of the repository `id`, by name; `choose` gets the bytes of all by name.

    `limit`: the most bytes of a file. Those of a commit are sent once. Raises as read_hub does.
    """

    def contents(session: _Session) -> dict[str, bytes]:
        return {name: session.content(name, limit) for name in choose(session.sizes())}

    return _read(hub, id, revision, contents)


def stored_json(hub: Hub, id: str, file: str, *, revision: str | None) -> dict[str, Any] | None:
    """The same file as the hub sent it for an earlier plan; None where the cache does not have it."""
    session = _stored(hub, id, revision)
    try:
        return session.json(file) if session else None
    except HeadfirstError:
        return None


def _stored(hub: Hub, id: str, revision: str | None) -> _Session | None:
    """The session of what the cache has; it sends no request."""
    at = revision or hub.source.branch
    cache = Cache(hub.address, id)
    pin = at if _COMMIT.fullmatch(at) else cache.pin(at)
    answers = cache.read(pin) if pin else {}
    return _Session(hub, id, at, None, cache, answers, pin) if answers else None


def _read(hub: Hub, id: str, revision: str | None, parse: Callable[[_Session], _T]) -> _T:
    """Parse what the revision names now, from the cache as far as it has the answers."""
    at = revision or hub.source.branch

    def read() -> _T:
        session = _Session(hub, id, at, requests, Cache(hub.address, id)).pinned()
        try:
            content = parse(session)
        except HeadfirstError:
            if not session.cached:
                raise
            session = session.without_cache()
            content = parse(session)
        session.store()
        return content

    with Requests.opened(hub, id, at) as requests:
        return requests.run(read)


def _parse(session: _Session, revision: str | None) -> Sent:
    hub, id = session.hub, session.id
    files = session.sizes()
    config = session.json("config.json")
    shards = session.shards(files)
    if not shards:
        raise InputError(
            f"{id} has no safetensors weights on {hub.name}.",
            hint="Choose a repository with *.safetensors; GGUF and .bin repositories cannot be served.",
        )
    quantization = session.json(QUANTIZATION) if QUANTIZATION in files else None
    try:
        tensors = session.all_tensors(shards)
    except NoPartsError:
        # Of a checkpoint that is not quantised the sizes of the files are enough.
        if config.get("quantization_config") or quantization:
            raise
        tensors = []
    checkpoint = from_config(
        config,
        id=id,
        revision=revision,
        weights=WeightFiles(sum(shard.bytes or 0 for shard in shards), shards, tensors),
        source="hub",
        where=session.where,
        quantization_config=quantization,
        sentence_transformers=MODULES in files,
        chat_template=has_template(config, files, session.json),
    )
    return Sent(checkpoint, config, quantization, session.pin, session.created())


class _Room:
    """Bytes that several threads share."""

    def __init__(self, free_bytes: int) -> None:
        self._free_bytes = free_bytes
        self._lock = threading.Lock()

    def take(self, count: int) -> bool:
        """Whether there were `count` bytes left, which are then taken."""
        with self._lock:
            self._free_bytes -= count
            return self._free_bytes >= 0


@dataclass(frozen=True)
class _Session:
    """Answers about one model at one revision, from the cache or by requests.

    `requests` None: the cache alone. `pin` is what the revision names, where the hub states it; `answers` has
    what was read of it, by name.
    """

    hub: Hub
    id: str
    revision: str
    requests: Requests | None
    cache: Cache
    answers: dict[str, bytes] = field(default_factory=dict)
    pin: str | None = None
    cached: frozenset[str] = frozenset()  # names of answers that the cache had

    def pinned(self) -> _Session:
        """The session of the content that the revision names: one request, or none for a commit."""
        if _COMMIT.fullmatch(self.revision):
            return self._of(self.revision, {})
        listing = self._get(self._listing_url, MAX_LISTING_BYTES)
        pin = self._pin(listing)
        if pin is None:
            return replace(self, answers={_LISTING: listing})
        self.cache.set_pin(self.revision, pin)
        return self._of(pin, {_LISTING: listing})

    def _of(self, pin: str, answers: dict[str, bytes]) -> _Session:
        stored = self.cache.read(pin)
        return replace(
            self, pin=pin, answers={**stored, **answers}, cached=frozenset(stored) - answers.keys()
        )

    def without_cache(self) -> _Session:
        """The session with the answers of this run alone."""
        fresh = {name: data for name, data in self.answers.items() if name not in self.cached}
        return replace(self, answers=fresh, cached=frozenset())

    def store(self) -> None:
        """Keep the answers for the next plan, where they are not all from there."""
        if self.pin and self.answers.keys() - self.cached - {_LISTING}:
            self.cache.write(self.pin, self.answers)

    def _answer(self, name: str, read: Callable[[], bytes]) -> bytes:
        if name not in self.answers:
            self.answers[name] = read()
        return self.answers[name]

    def json(self, file: str) -> dict[str, Any]:
        return self._parsed(self.content(file, MAX_JSON_BYTES), self._file(file), MAX_JSON_BYTES)

    def content(self, file: str, limit: int) -> bytes:
        return self._answer(f"file/{file}", lambda: self._get(self._file(file), limit))

    def shards(self, sizes: Mapping[str, int]) -> tuple[Shard, ...]:
        """The weight files: those of the index where there is one, else all at the top of the repository."""
        names = {name for name in sizes if name.endswith(".safetensors") and "/" not in name}
        if INDEX in sizes:
            names = set(index_names(self.json(INDEX), where=f"{self.where} {INDEX}"))
        missing = sorted(names - sizes.keys())
        if missing:
            raise InputError(
                f"{self.id} on {self.hub.name} lacks {shown(missing[0])}, which its index names.",
                hint="Choose another revision of the model.",
            )
        return tuple(Shard(name=name, bytes=sizes[name]) for name in sorted(names))

    def _listing(self) -> dict[str, Any]:
        answer = self._answer(_LISTING, lambda: self._get(self._listing_url, MAX_LISTING_BYTES))
        return self._parsed(answer, self._listing_url, MAX_LISTING_BYTES)

    def sizes(self) -> dict[str, int]:
        """File name -> bytes. One bad name or size refuses the whole list."""
        listing = self._listing()
        try:
            if "siblings" in listing:
                entries = [(entry["rfilename"], entry.get("size")) for entry in listing["siblings"]]
            else:
                files = [entry for entry in listing["Data"]["Files"] if entry["Type"] == "blob"]
                entries = [(entry["Path"], entry.get("Size")) for entry in files]
        except (KeyError, TypeError, AttributeError):
            raise UntrustedError("the list of files does not match the hub's API", where=self.where) from None
        names = file_listing((name for name, _ in entries), where=self.where)
        sizes = [
            integer(size or 0, what=f"the size of {shown(name)}", where=self.where, high=1 << 50)
            for name, size in entries
        ]
        return dict(zip(names, sizes, strict=True))

    def created(self) -> str | None:
        """The month in which Hugging Face's repository was made."""
        created = str(self._listing().get("createdAt", ""))[:7]
        return created if RELEASED.fullmatch(created) else None

    def all_tensors(self, shards: Sequence[Shard]) -> list[list[StoredTensor]]:
        """The tensors of each shard."""
        room = _Room(MAX_HEADER_BYTES)
        return silence.in_parallel(lambda shard: self.tensors(shard.name, room), shards, _PARALLEL_READS)

    def tensors(self, file: str, room: _Room) -> list[StoredTensor]:
        """The tensors of a shard, from its header, by two range requests, where there is `room` for it."""
        header = self._answer(f"header/{file}", lambda: self._header(file, room))
        try:
            return read_header(header, LENGTH_BYTES + len(header))
        except UntrustedError as error:
            raise self._damaged(file, error) from None

    def _header(self, file: str, room: _Room) -> bytes:
        url = self._file(file)
        requests = self._sending(url)
        prefix = requests.part(url, 0, LENGTH_BYTES)
        try:
            stop = LENGTH_BYTES + header_length(prefix)
        except UntrustedError as error:
            raise self._damaged(file, error) from None
        if not room.take(stop - LENGTH_BYTES):
            raise UntrustedError(
                f"the headers of the shards have more than {MAX_HEADER_BYTES} bytes together",
                where=self.where,
                hint="Choose another revision of the model, or another mirror.",
            )
        return requests.part(url, LENGTH_BYTES, stop)

    def _pin(self, listing: bytes) -> str | None:
        """What names the content of the list of files; None where the hub states nothing that does."""
        content = self._parsed(listing, self._listing_url, MAX_LISTING_BYTES)
        commit = content.get("sha")
        if isinstance(commit, str) and _COMMIT.fullmatch(commit):
            return commit
        try:
            files = [entry for entry in content["Data"]["Files"] if entry["Type"] == "blob"]
            hashes = sorted((str(entry["Path"]), str(entry["Sha256"])) for entry in files)
        except (KeyError, TypeError):
            return None
        return hashlib.sha256(json.dumps(hashes).encode()).hexdigest()

    def _damaged(self, file: str, error: UntrustedError) -> NotReadyError:
        return NotReadyError(
            f"The header of the shard {shown(file)} cannot be read: {error.what}.",
            where=self.where,
            hint="Choose another revision of the model, or another mirror.",
        )

    @property
    def where(self) -> str:
        return self.hub.where(self.id, self.revision)

    def _parsed(self, text: bytes, url: str, limit: int) -> dict[str, Any]:
        if not text.lstrip().startswith(b"{"):
            raise HubUnreachableError(
                f"{self.hub.name} at {self.hub.address} answers {url} with something that is not JSON.",
                hint="Check for a proxy or a sign-in page in between.",
            )
        content: dict[str, Any] = json_document(text, what="the hub's answer", where=self.where, limit=limit)
        return content

    @property
    def _at(self) -> str:
        """The commit where there is one, so that no file is of another; the hub's name for it elsewhere."""
        return self.pin if self.pin and _COMMIT.fullmatch(self.pin) else self.revision

    @property
    def _listing_url(self) -> str:
        return self.hub.source.listing.format(id=self.id, revision=self.revision)

    def _file(self, file: str) -> str:
        return self.hub.source.file.format(id=self.id, revision=self._at, file=quote(file))

    def _get(self, url: str, limit: int) -> bytes:
        return self._sending(url).get(url, limit)

    def _sending(self, url: str) -> Requests:
        if self.requests is None:
            raise HubUnreachableError(f"The answer of {self.hub.name} to {url} is not in the cache.")
        return self.requests
