"""An HTTP transport that reads answers of a bounded size and duration only."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx

from headfirst.common.untrusted import UntrustedError

MAX_ANSWER_BYTES = 16 << 20
# The client adds headers that the user's environment has for OpenAI's own service: OPENAI_ORG_ID,
# OPENAI_CUSTOM_HEADERS. They stay here.
_HEADERS = {
    "accept", "accept-encoding", "authorization", "connection", "content-length", "content-type", "host",
    "transfer-encoding", "user-agent",
}  # fmt: skip


class BoundedTransport(httpx.HTTPTransport):
    """As httpx's, for answers of at most MAX_ANSWER_BYTES that end within `timeout_s`, uncompressed."""

    def __init__(self, timeout_s: float, *, connections: int) -> None:
        super().__init__(limits=httpx.Limits(max_connections=connections))
        self._timeout_s = timeout_s

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request; UntrustedError for a compressed answer, whose size is not known."""
        end = time.monotonic() + self._timeout_s
        for name in set(request.headers) - _HEADERS:
            del request.headers[name]
        response = super().handle_request(request)
        if response.headers.get("Content-Encoding", "identity") != "identity":
            response.close()
            raise UntrustedError("the answer is compressed, and the request was for an uncompressed one")
        assert isinstance(response.stream, httpx.SyncByteStream)  # noqa: S101 - of a synchronous transport
        response.stream = _Bounded(response.stream, request, end)
        return response


class _Bounded(httpx.SyncByteStream):
    def __init__(self, stream: httpx.SyncByteStream, request: httpx.Request, end: float) -> None:
        self._stream = stream
        self._request = request
        self._end = end

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for chunk in self._stream:
            size += len(chunk)
            if size > MAX_ANSWER_BYTES:
                raise UntrustedError(f"the answer is larger than {MAX_ANSWER_BYTES} bytes")
            if time.monotonic() > self._end:
                raise httpx.ReadTimeout("the answer has no end", request=self._request)
            yield chunk

    def close(self) -> None:
        self._stream.close()
