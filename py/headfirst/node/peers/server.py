"""An HTTP server for known peers, and the handler of their requests.

Strangers are refused, silent connections do not hold it up, and each request is proven by its headers before
its body is read.
"""

from __future__ import annotations

import re
import socket
import sys
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from headfirst.node.peers.authentication import DIGEST, SESSION, Admission, digest

PER_PEER = 24
"""Connections of one address: two for news and some for files; twice as many while a member is restarted.
Each has a thread."""
_UNPROVEN_LIMIT_S = 10.0
_IDLE_LIMIT_S = 60.0
_STRANGERS = ""
_LENGTH_FORM = re.compile(r"0|[1-9][0-9]{0,8}")
_FORBIDDEN = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@dataclass
class _PeerConnection:
    """`proven`: a request of it was authenticated. `since`: when it was opened, or last proven.

    `busy`: it is being answered, however long that takes. `ended`: it is shut down, and its
    thread has not noticed yet.
    """

    address: str
    proven: bool = False
    busy: bool = False
    ended: bool = False
    since: float = field(default_factory=time.monotonic)

    def is_over(self, now: float) -> bool:
        return not self.busy and now - self.since > (_IDLE_LIMIT_S if self.proven else _UNPROVEN_LIMIT_S)


class PeerServer(ThreadingHTTPServer):
    """PER_PEER connections for each of `peers`; the least useful one gives way (until it is over, it counts
    among twice as many).

    A connection must be `proven` by its handler within ten seconds, and again each minute. Strangers are
    refused before a byte is read; with `hears_strangers` by the handler, and all together have as many
    connections as one peer.
    """

    admission: Admission
    daemon_threads = True
    hears_strangers = False
    request_queue_size = 128

    def __init__(
        self, place: tuple[str, int], handler: type[BaseHTTPRequestHandler], peers: Collection[str]
    ) -> None:
        self._peers = frozenset(peers)
        self._connections: dict[socket.socket, _PeerConnection] = {}
        self._lock = threading.Lock()
        super().__init__(place, handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Admit by address, before a byte is read."""
        is_peer = self.is_peer(client_address[0])
        address = client_address[0] if is_peer else _STRANGERS
        if not is_peer and not self.hears_strangers:
            request.setblocking(False)
            with suppress(OSError):  # it does not take the answer
                request.send(_FORBIDDEN)
            return False
        with self._lock:
            others = [item for item in self._connections.items() if item[1].address == address]
            if len(others) >= 2 * PER_PEER:
                return False
            useful = [item for item in others if not item[1].ended]
            if len(useful) >= PER_PEER:
                self._end(*min(useful, key=lambda item: (item[1].proven, item[1].since)))
            self._connections[request] = _PeerConnection(address)
        return True

    def is_peer(self, address: str) -> bool:
        """Whether the address is one of `peers`."""
        return address in self._peers

    def admission_of(self, address: str) -> Admission:
        """What checks the requests from this address: `admission`, unless each peer has its own."""
        return self.admission

    def prove(self, request: socket.socket) -> None:
        """Note that a connection has sent a request that is authentic."""
        with self._lock:
            if connection := self._connections.get(request):
                connection.proven, connection.since = True, time.monotonic()

    @contextmanager
    def busy(self, request: socket.socket) -> Iterator[None]:
        """Do not end a proven connection as idle within the block."""
        connection = self._connections.get(request) or _PeerConnection("")
        connection.busy = True
        try:
            yield
        finally:
            connection.busy, connection.since = False, time.monotonic()

    def service_actions(self) -> None:
        """End the connections that took too long; called several times a second."""
        now = time.monotonic()
        with self._lock:
            for request, connection in self._connections.items():
                if connection.is_over(now):
                    self._end(request, connection)

    def _end(self, request: socket.socket, connection: _PeerConnection) -> None:
        """Wake the thread that reads from a connection: it finds the end of it."""
        connection.ended = True
        with suppress(OSError):  # the peer may have closed it
            # Not SSLSocket's own: after it, what the thread still sends would go in clear.
            socket.socket.shutdown(request, socket.SHUT_RDWR)

    def server_close(self) -> None:
        """Listen no more, and end all connections."""
        super().server_close()
        with self._lock:
            for request, connection in self._connections.items():
                self._end(request, connection)

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection that is over."""
        with self._lock:
            self._connections.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A peer that went away in the middle is no error here: it asks again."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class PeerHandler(BaseHTTPRequestHandler):
    """One connection of a peer."""

    server: PeerServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def admitted_body(self, limit: int, *more: str) -> tuple[tuple[str, ...], bytes] | None:
        """The words that prove a POST, and its body; None where it was refused.

        `more` are words that the request proves beside the digest and the length of a body of at most `limit`
        bytes.
        """
        length, told = (self.headers.get(name, "") for name in ("Content-Length", DIGEST))
        words = ("POST", told, length, *more)
        if not self.server.is_peer(self.client_address[0]):
            self.refuse(HTTPStatus.FORBIDDEN)
        elif "Transfer-Encoding" in self.headers or not _LENGTH_FORM.fullmatch(length):
            self.refuse(HTTPStatus.BAD_REQUEST)
        elif int(length) > limit:
            self.refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        elif self.is_admitted(words):
            body = self.rfile.read(int(length)) or b""
            if digest(body) == told:
                return words, body
            self.refuse(HTTPStatus.BAD_REQUEST)
        return None

    @property
    def _admission(self) -> Admission:
        return self.server.admission_of(self.client_address[0])

    def is_admitted(self, words: tuple[str, ...]) -> bool:
        """Whether a member makes the request for `words`; else it was refused."""
        refusal = self._admission.refusal(dict(self.headers), *words)
        if refusal:
            self.refuse(refusal)
            return False
        self.server.prove(self.connection)
        return True

    def answer(self, words: tuple[str, ...], data: bytes) -> None:
        """Send the body `data`, proven to answer the request for `words`."""
        proof = self._admission.answer(dict(self.headers), words, data)
        self.begin(HTTPStatus.OK, {"Content-Length": str(len(data)), **proof})
        self.wfile.write(data)

    def refuse(self, status: HTTPStatus) -> None:
        """The body is not read, so the connection cannot be used again. FORBIDDEN is proven to the caller."""
        self.close_connection = True
        admission, headers = self._admission, {"Content-Length": "0", "Connection": "close"}
        if status is HTTPStatus.FORBIDDEN:
            listener, address = self.connection.getsockname()[0], self.client_address[0]
            headers |= admission.not_a_member(dict(self.headers), listener, address)
        self.begin(status, {**headers, SESSION: admission.session})

    def begin(self, status: HTTPStatus, headers: dict[str, str]) -> None:
        """Send the status and the headers."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: requests are many, and what matters is recorded elsewhere."""
