"""One HTTP connection to another member, from a chosen address of this host."""

from __future__ import annotations

import http.client
import io
import re
import socket
import ssl
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from headfirst.common.errors import NotReadyError
from headfirst.node.peers.authentication import DIGEST, Caller, digest
from headfirst.node.weights.transfer.listener import WAIT
from headfirst.node.weights.transfer.messages import LONGEST

ANSWER_LIMIT_S = 20.0
"""For an answer to news."""
SILENCE_LIMIT_S = 45.0
"""For bytes of a file: the other node may wait for them as well."""
PIECE_LIMIT_S = 120.0
"""For all bytes that are read at once."""
_CONNECT_LIMIT_S = 2.0
_HANDSHAKE_LIMIT_S = 10.0
_CHUNK = 64 * 1024
_RANGE_FORM = re.compile(r"bytes (0|[1-9][0-9]{0,17})-(0|[1-9][0-9]{0,17})/[0-9]+")
_REFUSALS: dict[int, str] = {
    HTTPStatus.UNAUTHORIZED: "its token differs",
    HTTPStatus.FORBIDDEN: "it does not list this host's address as a member",
}

Unreachable = (OSError, http.client.HTTPException)
"""What is raised where the other node does not answer, or stops in the middle."""


class PeerRefused(NotReadyError):
    """The other node is there and does not accept this one; waiting does not help."""


class Untrue(PeerRefused):
    """The other node is a member and sends what is malformed, or what the head has not signed."""


class Gone(ConnectionError):
    """The other node had the file, and somebody has removed it there or cut it short."""


class Body:
    """The bytes of a range; the first ones were `begun` to be read with an answer's headers."""

    def __init__(self, sock: socket.socket, begun: bytes) -> None:
        self._sock = sock
        self._begun = begun
        # The kernel returns when all is there, not at each packet: half the CPU time.
        self._flags = 0 if isinstance(sock, ssl.SSLSocket) else socket.MSG_WAITALL

    def fill(self, view: memoryview) -> None:
        """Read the next bytes, as many as `view` has. Raises Unreachable."""
        first, self._begun = self._begun[: len(view)], self._begun[len(view) :]
        view[: len(first)] = first
        view = view[len(first) :]
        deadline = time.monotonic() + PIECE_LIMIT_S
        while view:
            if time.monotonic() > deadline:
                raise TimeoutError("the bytes arrive too slowly")
            count = self._sock.recv_into(view, 0, self._flags)
            if not count:
                raise ConnectionError("the connection ended")
            view = view[count:]


class _Limited(io.RawIOBase):
    """Reads for no longer than a member takes to answer, also from who sends a byte at a time."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._deadline = time.monotonic() + SILENCE_LIMIT_S

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Raises TimeoutError when it is too late."""
        if time.monotonic() > self._deadline:
            raise TimeoutError("the answer takes too long")
        count: int | None = self._raw.readinto(buffer)
        if count is None:  # the kernel's limit
            raise TimeoutError("nothing comes")
        return count

    def close(self) -> None:
        """Close what is read from."""
        self._raw.close()
        super().close()


class _UnprovenAnswer(http.client.HTTPResponse):
    """Who sends it is not proven."""

    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp = io.BufferedReader(_Limited(self.fp.detach()))


@dataclass(frozen=True)
class _Request:
    """`words` are what its proof covers, `limit_s` the longest silence while it is answered."""

    method: str
    path: str
    words: tuple[str, ...]
    headers: Mapping[str, str]
    limit_s: float
    body: bytes | None = None


class Link:
    """Speaks from `local_address` to `address`:`port`. Not safe to use from threads, but for `cut`."""

    def __init__(
        self,
        local_address: str,
        address: str,
        port: int,
        token: str,
        encryption: ssl.SSLContext | None = None,
    ) -> None:
        self.address = address
        self._url = f"http://{address}:{port}/"
        self._caller = Caller(token)
        self._encryption = encryption
        self._connection = http.client.HTTPConnection(
            address, port, timeout=_CONNECT_LIMIT_S, source_address=(local_address, 0)
        )
        self._connection.response_class = _UnprovenAnswer
        self._is_cut = False

    def exchange(self, body: bytes, *, wait: bool) -> bytes:
        """Send news and return the answer. Raises Unreachable, or Refused."""
        waits = str(int(wait))
        words = ("POST", digest(body), str(len(body)), waits)
        headers = {DIGEST: words[1], WAIT: waits}
        answer = self._ask(_Request("POST", "/", words, headers, ANSWER_LIMIT_S, body))
        if answer.status != HTTPStatus.OK:
            self.close()
            raise self._refused(answer)
        data = self._bounded(answer)
        if not self._caller.is_answer(dict(answer.headers), data):
            raise PeerRefused("what answers does not have the transfer's token", where=self._url)
        return data

    def request(self, version: str, name: str, start: int, end: int) -> Body:
        """The bytes from `start` up to `end` of a file, until the next request.

        Raises Unreachable, also where the bytes are not there yet, Gone, or PeerRefused.
        """
        path, span = f"/{version}/{quote(name)}", f"bytes={start}-{end - 1}"
        answer = self._ask(_Request("GET", path, ("GET", path, span), {"Range": span}, SILENCE_LIMIT_S))
        if answer.status != HTTPStatus.PARTIAL_CONTENT:
            self.close()
            if answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
                raise ConnectionError(f"{name} is not there yet")
            if answer.status == HTTPStatus.GONE:
                raise Gone(f"{name} is gone")
            raise self._refused(answer)
        told = _RANGE_FORM.fullmatch(answer.headers.get("Content-Range", ""))
        if told is None or int(told[1]) != start or self._connection.sock is None:
            raise http.client.HTTPException(f"another range is sent instead of {span}")
        if int(told[2]) != end - 1 or answer.length != end - start:
            raise http.client.HTTPException(f"{answer.length} bytes are sent instead of {end - start}")
        begun = bytes(answer.fp.peek())
        answer.close()  # the rest is read from the socket, without a copy
        return Body(self._connection.sock, begun)

    def cut(self) -> None:
        """End the connection, also while another thread uses or opens it; that one finds it ended."""
        self._is_cut = True
        if sock := self._connection.sock:
            with suppress(OSError):  # it is over already
                # Not SSLSocket's own: after it, what the thread still sends would go in clear.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection; the next request opens it again."""
        self._connection.close()
        self._is_cut = False

    def _ask(self, request: _Request) -> http.client.HTTPResponse:
        """The answer to a request; where the listener was started since, to a second one with its session."""
        answer = self._send(request)
        if answer.status == HTTPStatus.CONFLICT:
            self._caller.learn(dict(answer.headers))
            self._connection.close()
            answer = self._send(request)
        return answer

    def _send(self, request: _Request) -> http.client.HTTPResponse:
        if self._connection.sock is None:
            self._connect()
        if self._is_cut:
            raise ConnectionError("the connection is not needed any more")
        self._set_limit(request.limit_s)
        proof = self._caller.sign(*request.words)
        signed = {**request.headers, **proof, "Accept-Encoding": "identity"}
        try:
            self._connection.request(request.method, request.path, request.body, signed)
        except OSError:
            # A listener that refuses answers before it has read everything, and hangs up.
            if self._connection.sock is None:
                raise
        return self._connection.getresponse()

    def _connect(self) -> None:
        self._connection.timeout = _CONNECT_LIMIT_S
        self._connection.connect()
        sock = self._connection.sock
        for option, value in ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 2), (socket.TCP_KEEPCNT, 4)):
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._encryption:
            sock.settimeout(_HANDSHAKE_LIMIT_S)
            secure = self._encryption.wrap_socket(sock, do_handshake_on_connect=False)
            self._connection.sock = secure
            if self._is_cut:
                return
            try:
                secure.do_handshake()
            except ssl.SSLCertVerificationError:
                raise PeerRefused(
                    "what answers does not have the transfer's token", where=self._url
                ) from None
        else:
            sock.settimeout(None)  # limits are the kernel's: with one of Python's, each call would be two

    def _set_limit(self, limit_s: float) -> None:
        sock = self._connection.sock
        if self._encryption:
            sock.settimeout(limit_s)
        else:
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(limit_s), 0))

    def _bounded(self, answer: http.client.HTTPResponse) -> bytes:
        """The body, whose sender is not proven yet: no longer, and not for longer, than a member's can be."""
        deadline = time.monotonic() + ANSWER_LIMIT_S
        body = bytearray()
        while chunk := answer.read1(_CHUNK):
            body += chunk
            if len(body) > LONGEST:
                raise PeerRefused(f"what answers sends more than {LONGEST} bytes", where=self._url)
            if time.monotonic() > deadline:
                raise TimeoutError("the answer takes too long")
        if answer.length != 0:
            raise ConnectionError("the connection ended in the middle of an answer")
        answer.close()  # else the connection could not be used again
        return bytes(body)

    def _refused(self, answer: http.client.HTTPResponse) -> PeerRefused:
        why = _REFUSALS.get(answer.status, f"it answers with status {answer.status}")
        return PeerRefused(f"a node of the transfer refuses this one: {why}", where=self._url)
