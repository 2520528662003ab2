"""GET requests to a hub: its addresses, and limits on silence, sizes and redirects.

Hugging Face: GET /api/models/ID/revision/REV?blobs=true and /ID/resolve/REV/FILE (hub API documentation).
ModelScope: GET /api/v1/models/ID/repo/files and /api/v1/models/ID/repo?FilePath=FILE (package modelscope).
Addresses, and the variables of mirrors and tokens: plugins/module_utils/weight_sources.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import httpx
from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import HUBS, WeightSource

from headfirst.common.errors import InputError, NotReadyError
from headfirst.common.untrusted import UntrustedError, joined, shown, without_password
from headfirst.control.checkpoints import silence

_T = TypeVar("_T")
# Endpoints that were silent: one run waits for each once, whatever it asks of it.
_SILENT: set[str] = set()
# Of a body at least this much must come before the hub counts as silent.
_CHUNK_BYTES = 64 << 10
_MAX_REDIRECTS = 5
# A compressed answer could be of any size: none is asked for, and none is taken.
_PLAIN = {"Accept-Encoding": "identity"}


class HubUnreachableError(NotReadyError):
    """No answer from the hub: no network, no name, a timeout, or the hub's own failure (5xx)."""


class NoPartsError(HubUnreachableError):
    """The hub sends whole files only."""


@dataclass(frozen=True)
class Hub:
    """A hub with the environment's mirror and token."""

    source: WeightSource
    endpoint: str
    token: str | None

    @property
    def name(self) -> str:
        return self.source.title

    @property
    def address(self) -> str:
        """The endpoint as messages show it."""
        return without_password(self.endpoint)

    def where(self, id: str, revision: str) -> str:
        """A model, as messages show it."""
        return f"{self.address} {id}@{revision}"

    @classmethod
    def of(cls, name: str, environment: Mapping[str, str]) -> Hub:
        """The hub called `name`; InputError for what is none."""
        if name not in HUBS:
            raise InputError(f"{shown(name)} is not a hub", hint=f"The hubs are {' and '.join(HUBS)}.")
        source = HUBS[name]
        endpoint = environment.get(source.endpoint_variable, source.address).rstrip("/")
        return cls(source, endpoint, environment.get(source.token_variable))


@dataclass(frozen=True)
class Requests:
    """Requests about one model at one revision."""

    hub: Hub
    id: str
    revision: str
    client: httpx.Client
    _watch: silence.SilenceWatch = field(default_factory=silence.SilenceWatch)

    @classmethod
    @contextlib.contextmanager
    def opened(cls, hub: Hub, id: str, revision: str) -> Iterator[Requests]:
        """Requests over one connection, which ends with the block."""
        headers = _PLAIN | ({"Authorization": f"Bearer {hub.token}"} if hub.token else {})
        with httpx.Client(base_url=hub.endpoint, headers=headers, timeout=silence.LIMIT_S) as client:
            yield cls(hub, id, revision, client)

    @property
    def where(self) -> str:
        return self.hub.where(self.id, self.revision)

    def run(self, work: Callable[[], _T]) -> _T:
        """What the work returns; HubUnreachableError where the hub is silent, or was before in this run."""
        if self.hub.endpoint in _SILENT:
            raise self._silent()
        try:
            return self._watch.run(work)
        except silence.SilentError:
            _SILENT.add(self.hub.endpoint)
            raise self._silent() from None

    def _silent(self) -> HubUnreachableError:
        return HubUnreachableError(
            f"{self.hub.name} at {self.hub.address} sent nothing for {silence.LIMIT_S:.0f} seconds."
        )

    def get(self, url: str, limit: int) -> bytes:
        """The body, of at most `limit` bytes."""
        with self._opened(url, {}) as response:
            return self._body(response, limit)

    def part(self, url: str, begin: int, stop: int) -> bytes:
        """The bytes of a file from `begin` up to `stop`."""
        with self._opened(url, {"Range": f"bytes={begin}-{stop - 1}"}) as response:
            if response.status_code != httpx.codes.PARTIAL_CONTENT:
                raise NoPartsError(
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
            self._watch.chunks(response.iter_bytes(_CHUNK_BYTES)),
            what="the hub's answer",
            where=self.where,
            limit=limit,
        )

    @contextlib.contextmanager
    def _opened(self, url: str, headers: dict[str, str]) -> Iterator[httpx.Response]:
        """The answer after redirects, whose bodies are not read."""
        request = self.client.build_request("GET", url, headers=headers)
        try:
            for _ in range(_MAX_REDIRECTS + 1):
                with self._watch.waiting():
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
                hint=f"Check network and proxy, or name a mirror in {self.hub.source.endpoint_variable}.",
            ) from error

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
                hint=f"Accept the model's licence on its page and set {self.hub.source.token_variable}.",
            )
        if status == 404:
            raise InputError(
                f"{self.hub.name} has no {self.id} at revision {self.revision}.",
                hint="Check model, model_source and model_revision: the hubs spell some models differently.",
            )
        if status >= 500:
            raise HubUnreachableError(f"{self.hub.name} at {self.hub.address} answers HTTP {status}.")
        response.raise_for_status()
