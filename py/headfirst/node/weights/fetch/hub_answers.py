"""A limit on what the hubs' clients read into memory: lists, error pages and redirects, but not files.

A hub's client reads such an answer whole, and so would a compressed answer of any size be.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import Any, TypeVar

from headfirst.common.untrusted import UntrustedError, joined, json_document, without_password

ANSWER_LIMIT = 32 << 20
"""Bytes; the list of a thousand files has a third of a megabyte."""
_DEPTH = 32
_BLOCK = 64 * 1024

Client = TypeVar("Client")


def bound_httpx(client: Client) -> Client:
    """Limit an httpx client."""

    def hook(response: Any) -> None:
        if not _is_file(response):
            response._content = _whole(response.iter_bytes(_BLOCK), response)

    client.event_hooks["response"].append(hook)  # type: ignore[attr-defined]
    return client


def bound_requests(client: Any) -> None:
    """Limit ModelScope's client."""

    def hook(response: Any, **_how: Any) -> None:
        if not _is_file(response):
            response._content = _whole(response.iter_content(_BLOCK), response)
            response.raw = _Consumed(response.raw)  # else the client reads on from the socket

    for session in (client._session, client._read_session):
        session.hooks["response"].append(hook)


class _Consumed(BytesIO):
    """A body that was read; what requests takes cookies from is still there."""

    def __init__(self, raw: Any) -> None:
        super().__init__()
        self._original_response = getattr(raw, "_original_response", None)


def _is_file(response: Any) -> bool:
    """Whether it answers our own request for a file: these ask for it as it is."""
    request = response.request
    as_it_is: bool = request.headers.get("Accept-Encoding") == "identity" or request.method == "HEAD"
    return as_it_is and 200 <= response.status_code < 300


def _whole(chunks: Iterator[bytes], response: Any) -> bytes:
    where = without_password(str(response.url).partition("?")[0])
    what = "the hub's answer"
    try:
        body = joined(chunks, what=what, where=where, limit=ANSWER_LIMIT)
    except UntrustedError:
        response.close()
        raise
    if 200 <= response.status_code < 300 and body.startswith((b"{", b"[")):
        json_document(body, what=what, where=where, limit=ANSWER_LIMIT, depth=_DEPTH)
    return body
