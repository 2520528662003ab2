"""Describe a model on a hub from its config.json, its file list and its shards' headers, not its weights.

Hugging Face: GET /api/models/ID/revision/REV?blobs=true and /ID/resolve/REV/FILE (hub API documentation).
ModelScope: GET /api/v1/models/ID/repo/files and /api/v1/models/ID/repo?FilePath=FILE (package modelscope).
Mirrors: HF_ENDPOINT and MODELSCOPE_ENDPOINT; tokens of gated models: HF_TOKEN and MODELSCOPE_API_TOKEN.

The list of files names the content: Hugging Face's by its commit, ModelScope's by each file's sha256. What is
read of that content is in the cache for the next plan (cache.py).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from urllib.parse import quote

import httpx

from headfirst.common.errors import HeadfirstError, InputError, NotReadyError
from headfirst.common.safetensors_file import LENGTH_BYTES, StoredTensor, header_length, read_header
from headfirst.common.untrusted import (
    UntrustedError,
    file_listing,
    integer,
    joined,
    json_document,
    shown,
    without_password,
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
from headfirst.decide.model.catalogue_entries import RELEASED
from headfirst.decide.model.checkpoint import Checkpoint, Shard
from headfirst.decide.model.config import Weights, from_config

_T = TypeVar("_T")
_COMMIT = re.compile("[0-9a-f]{40}")
_LISTING = "listing"
# Endpoints that were silent: one run waits for each once, whatever it asks of it.
_SILENT: set[str] = set()
# Of a body at least this much must come before the hub counts as silent.
_CHUNK_BYTES = 64 << 10
_PARALLEL_READS = 8
_MAX_REDIRECTS = 5
# A compressed answer could be of any size: none is asked for, and none is taken.
_PLAIN = {"Accept-Encoding": "identity"}
MAX_LISTING_BYTES = 32 << 20
# Of all shards together. Of 210,000 tensors, as in the largest checkpoints, they have 30 MB.
MAX_HEADER_BYTES = 64 << 20


class HubUnreachableError(NotReadyError):
    """No answer from the hub: no network, no name, a timeout, or the hub's own failure (5xx)."""


class _NoPartsError(HubUnreachableError):
    """The hub sends whole files only."""


@dataclass(frozen=True)
class Hub:
    """One hub's addresses. `listing` and `file` have fields {id}, {revision} and {file}."""

    name: str
    endpoint: str
    listing: str
    file: str
    default_revision: str
    token: str | None = None

    @property
    def address(self) -> str:
        """The endpoint as messages show it."""
        return without_password(self.endpoint)

    @classmethod
    def of(cls, source: str, environment: Mapping[str, str]) -> Hub:
        """The hub called `source` (huggingface or modelscope), with the environment's mirror and token."""
        if source == "huggingface":
            endpoint = environment.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
            return cls(
                "Hugging Face",
                endpoint,
                "/api/models/{id}/revision/{revision}?blobs=true",
                "/{id}/resolve/{revision}/{file}",
                "main",
                environment.get("HF_TOKEN"),
            )
        if source == "modelscope":
            endpoint = environment.get("MODELSCOPE_ENDPOINT", "https://www.modelscope.cn").rstrip("/")
            return cls(
                "ModelScope",
                endpoint,
                "/api/v1/models/{id}/repo/files?Revision={revision}&Recursive=false",
                "/api/v1/models/{id}/repo?Revision={revision}&FilePath={file}",
                "master",
                environment.get("MODELSCOPE_API_TOKEN"),
            )
        raise InputError(
            f"Unknown model_source {source!r}.", hint="It can be modelscope, huggingface or path."
        )


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


def describe_hub(
    hub: Hub, id: str, *, revision: str | None = None, transport: httpx.BaseTransport | None = None
) -> Checkpoint:
    """Describe `id` as the hub has it; the errors are those of `read_hub`."""
    return read_hub(hub, id, revision=revision, transport=transport).checkpoint


def read_hub(
    hub: Hub, id: str, *, revision: str | None = None, transport: httpx.BaseTransport | None = None
) -> Sent:
    """Read what the hub has of `id`. HubUnreachableError without a network; InputError when the hub does
    not have the model, or requires a token."""
    at = revision or hub.default_revision
    with _client(hub, transport) as client:
        session = _Session(hub, id, at, client, silence.Watch(), Cache(hub.address, id))
        return _within(session, lambda: _read(session, lambda pinned: _parse(pinned, revision)))


def _within(session: _Session, work: Callable[[], _T]) -> _T:
    """What the work returns; HubUnreachableError where the hub is silent, or was before in this run."""
    if session.hub.endpoint in _SILENT:
        raise session.silent()
    try:
        return session.watch.run(work)
    except silence.SilentError:
        _SILENT.add(session.hub.endpoint)
        raise session.silent() from None


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


def hub_json(hub: Hub, id: str, file: str, *, transport: httpx.BaseTransport | None = None) -> dict[str, Any]:
    """A JSON file of the repository `id`. Raises as read_hub does."""
    at = hub.default_revision
    with _client(hub, transport) as client:
        session = _Session(hub, id, at, client, silence.Watch(), Cache(hub.address, id))
        return _within(session, lambda: _read(session, lambda pinned: pinned.json(file)))


def stored_json(hub: Hub, id: str, file: str) -> dict[str, Any] | None:
    """The same file as the hub sent it for an earlier plan; None where the cache does not have it."""
    session = _stored(hub, id, None)
    try:
        return session.json(file) if session else None
    except HeadfirstError:
        return None


def _stored(hub: Hub, id: str, revision: str | None) -> _Session | None:
    """The session of what the cache has; it sends no request."""
    at = revision or hub.default_revision
    cache = Cache(hub.address, id)
    pin = at if _COMMIT.fullmatch(at) else cache.pin(at)
    answers = cache.read(pin) if pin else {}
    return _Session(hub, id, at, None, silence.Watch(), cache, answers, pin) if answers else None


def _read(session: _Session, parse: Callable[[_Session], _T]) -> _T:
    """Parse what the revision names now, from the cache as far as it has the answers."""
    pinned = session.pinned()
    try:
        content = parse(pinned)
    except HeadfirstError:
        if not pinned.reads_cache:
            raise
        pinned = pinned.without_cache()
        content = parse(pinned)
    pinned.store()
    return content


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
    except _NoPartsError:
        # Of a checkpoint that is not quantised the sizes of the files are enough.
        if config.get("quantization_config") or quantization:
            raise
        tensors = []
    checkpoint = from_config(
        config,
        id=id,
        revision=revision,
        weights=Weights(sum(shard.bytes or 0 for shard in shards), shards, tensors),
        source="hub",
        where=session.where,
        quantization_config=quantization,
        sentence_transformers=MODULES in files,
        chat_template=has_template(config, files, session.json),
    )
    return Sent(checkpoint, config, quantization, session.pin, session.created())


def _client(hub: Hub, transport: httpx.BaseTransport | None) -> httpx.Client:
    headers = _PLAIN | ({"Authorization": f"Bearer {hub.token}"} if hub.token else {})
    return httpx.Client(base_url=hub.endpoint, headers=headers, transport=transport, timeout=silence.LIMIT_S)


class _Room:
    """Bytes that several threads share."""

    def __init__(self, left: int) -> None:
        self._left = left
        self._lock = threading.Lock()

    def take(self, count: int) -> bool:
        """Whether there were `count` bytes left, which are then taken."""
        with self._lock:
            self._left -= count
            return self._left >= 0


@dataclass(frozen=True)
class _Session:
    """Answers about one model at one revision, from the cache or by requests.

    `client` None sends no request. `pin` is what the revision names, where the hub states it; `answers` has
    what was read of it, by name.
    """

    hub: Hub
    id: str
    revision: str
    client: httpx.Client | None
    watch: silence.Watch
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

    @property
    def reads_cache(self) -> bool:
        return bool(self.cached)

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
        read = self._answer(f"file/{file}", lambda: self._get(self._file(file), MAX_JSON_BYTES))
        return self._parsed(read, self._file(file), MAX_JSON_BYTES)

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
        prefix = self._part(url, 0, LENGTH_BYTES)
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
        return self._part(url, LENGTH_BYTES, stop)

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
        return f"{self.hub.address} {self.id}@{self.revision}"

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
        return self.hub.listing.format(id=self.id, revision=self.revision)

    def _file(self, file: str) -> str:
        return self.hub.file.format(id=self.id, revision=self._at, file=quote(file))

    def _get(self, url: str, limit: int) -> bytes:
        """The body, of at most `limit` bytes."""
        with self._opened(url, {}) as response:
            return self._body(response, limit)

    def _part(self, url: str, begin: int, stop: int) -> bytes:
        """The bytes of a file from `begin` up to `stop`."""
        with self._opened(url, {"Range": f"bytes={begin}-{stop - 1}"}) as response:
            if response.status_code != httpx.codes.PARTIAL_CONTENT:
                raise _NoPartsError(
                    f"{self.hub.name} at {self.hub.address} does not support range requests.",
                    hint="Use another mirror, or fetch the model and give its folder.",
                )
            return self._body(response, stop - begin)

    def _body(self, response: httpx.Response, limit: int) -> bytes:
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise UntrustedError(
                "the hub sends a compressed answer to a request for an uncompressed one", where=self.where
            )
        return joined(
            self.watch.chunks(response.iter_bytes(_CHUNK_BYTES)),
            what="the hub's answer",
            where=self.where,
            limit=limit,
        )

    @contextlib.contextmanager
    def _opened(self, url: str, headers: dict[str, str]) -> Iterator[httpx.Response]:
        """The answer after redirects, whose bodies are not read."""
        if self.client is None:
            raise HubUnreachableError(f"The answer of {self.hub.name} to {url} is not in the cache.")
        request = self.client.build_request("GET", url, headers=headers)
        try:
            for _ in range(_MAX_REDIRECTS + 1):
                with self.watch.waiting():
                    sent = self.client.send(request, stream=True)
                with contextlib.closing(sent) as response:
                    if response.next_request is None:
                        self._refuse(response)
                        yield response
                        return
                    request = self._redirected(response.next_request)
            raise UntrustedError(f"the hub redirects more than {_MAX_REDIRECTS} times", where=self.where)
        except httpx.TimeoutException:
            raise silence.SilentError from None
        except httpx.HTTPError as error:
            why = without_password(str(error)) or type(error).__name__
            raise HubUnreachableError(
                f"{self.hub.name} at {self.hub.address} cannot be reached: {why}.",
                hint="Check network and proxy, or name a mirror in HF_ENDPOINT or MODELSCOPE_ENDPOINT.",
            ) from error

    def silent(self) -> HubUnreachableError:
        return HubUnreachableError(
            f"{self.hub.name} at {self.hub.address} sent nothing for {silence.LIMIT_S:.0f} seconds."
        )

    def _redirected(self, request: httpx.Request) -> httpx.Request:
        if self.hub.endpoint.startswith("https:") and request.url.scheme != "https":
            address = shown(without_password(str(request.url)))
            raise UntrustedError(f"the hub redirects to an address without TLS: {address}", where=self.where)
        return request

    def _refuse(self, response: httpx.Response) -> None:
        """Raise for an answer that is no success."""
        status = response.status_code
        if status in (401, 403):
            raise InputError(
                f"{self.hub.name} refuses {self.id} (HTTP {status}): it is gated, private or misspelt.",
                hint="Accept the model's licence on its page and set HF_TOKEN (or MODELSCOPE_API_TOKEN).",
            )
        if status == 404:
            raise InputError(
                f"{self.hub.name} has no {self.id} at revision {self.revision}.",
                hint="Check model, model_source and model_revision: the hubs spell some models differently.",
            )
        if status >= 500:
            raise HubUnreachableError(f"{self.hub.name} at {self.hub.address} answers HTTP {status}.")
        response.raise_for_status()
