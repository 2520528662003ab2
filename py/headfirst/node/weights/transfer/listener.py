"""Answers the members of a transfer over HTTP: their news, and ranges of the files that this node has.

`POST /` exchanges news (chain.py). `GET /VERSION/NAME` with a Range sends bytes of a file; those that are not
here yet are waited for, so that a neighbour reads a file while it still grows. docs/weights-protocol.md
describes both for other programs.
"""

from __future__ import annotations

import os
import re
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Collection, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

from headfirst.common.errors import NotReadyError
from headfirst.common.untrusted import UntrustedError
from headfirst.node.peers.authentication import Admission
from headfirst.node.peers.server import PeerHandler, PeerServer
from headfirst.node.weights.transfer.messages import LONGEST
from headfirst.node.weights.transfer.shelf import Shelf

WAIT = "X-Headfirst-Wait"
NEWS_WAIT_S = 5.0
"""How long an answer may wait for news."""
BYTES_WAIT_S = 30.0
"""How long an answer waits for bytes that are not here yet."""
_SILENCE_LIMIT_S = 10
_SEND_LIMIT_S = 60
_SLICE_S = 1.0
_AT_ONCE = 4 << 20  # bytes to the kernel in one call
_RANGE_FORM = re.compile(r"bytes=(0|[1-9][0-9]{0,17})-(0|[1-9][0-9]{0,17})")
_PATH_FORM = re.compile(r"/([0-9a-f]{32})/([^?#]{1,4096})")


class TransferListener:
    """Listens on each of `addresses`, port `port`, for requests from `peers`. Use as a context manager.

    `exchange` takes a member's message, and whether the answer may wait for news; it returns the answer, and
    raises UntrustedError where it is no message.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        port: int,
        peers: Collection[str],
        token: str,
        exchange: Callable[[bytes, bool], bytes],
        shelf: Shelf,
        encryption: ssl.SSLContext | None = None,
    ) -> None:
        self.exchange, self.shelf = exchange, shelf
        self.sent = 0
        """Bytes of files that were sent."""
        self._lock = threading.Lock()
        admission = Admission(token)
        self._servers: list[_TransferServer] = []
        for address in addresses:
            try:
                server = _TransferServer(self, (address, port), peers, admission, encryption)
            except OSError as error:
                self._close()
                raise NotReadyError(
                    f"cannot listen on {address} port {port}: {error.strerror}",
                    hint="Set weights_port to a free port, and address to one of this host's own.",
                ) from error
            self._servers.append(server)

    def __enter__(self) -> TransferListener:
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.shutdown()
        self._close()

    def count(self, sent: int) -> None:
        """Add bytes to `sent`. Safe to use from threads."""
        with self._lock:
            self.sent += sent

    def _close(self) -> None:
        for server in self._servers:
            server.server_close()


class _TransferServer(PeerServer):
    """One address of a listener."""

    def __init__(
        self,
        listener: TransferListener,
        place: tuple[str, int],
        peers: Collection[str],
        admission: Admission,
        encryption: ssl.SSLContext | None,
    ) -> None:
        self.listener, self.admission, self._encryption = listener, admission, encryption
        super().__init__(place, _TransferHandler, peers)

    def get_request(self) -> tuple[socket.socket, Any]:
        """A connection; where it is encrypted its thread shakes hands, so that nobody holds up the others."""
        connection, address = super().get_request()
        if self._encryption:
            connection.settimeout(_SEND_LIMIT_S)
            connection = self._encryption.wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False
            )
        else:
            # A timeout in the kernel: with one of Python's, each call would be two.
            limits = ((socket.SO_SNDTIMEO, _SEND_LIMIT_S), (socket.SO_RCVTIMEO, _SILENCE_LIMIT_S))
            for option, seconds in limits:
                connection.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", seconds, 0))
        return connection, address


class _TransferHandler(PeerHandler):
    server: _TransferServer

    def do_POST(self) -> None:
        """Exchange news."""
        waits = self.headers.get(WAIT, "")
        admitted = self.admitted_body(LONGEST, waits)
        if admitted is None:
            return None
        words, body = admitted
        try:
            data = self.server.listener.exchange(body, waits == "1")
        except UntrustedError:
            return self.refuse(HTTPStatus.BAD_REQUEST)
        return self.answer(words, data)

    def do_GET(self) -> None:
        """Send a range of a file, each byte once it is here."""
        path, span = _PATH_FORM.fullmatch(self.path), _RANGE_FORM.fullmatch(self.headers.get("Range", ""))
        if path is None or span is None or "Content-Length" in self.headers or int(span[1]) > int(span[2]):
            return self.refuse(HTTPStatus.BAD_REQUEST)
        if not self.is_admitted(("GET", self.path, span[0])):
            return None
        with self.server.busy(self.connection):
            self._answer_range(path[1], unquote(path[2]), int(span[1]), int(span[2]) + 1)
        return None

    def _answer_range(self, version: str, name: str, start: int, end: int) -> None:
        if self.server.listener.shelf.is_beyond(name, version, start):
            return self.refuse(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
        try:
            opened = self._waited(lambda: self.server.listener.shelf.open(name, version, start, _SLICE_S))
        except OSError:  # it was removed or cut short by somebody else
            return self.refuse(HTTPStatus.GONE)
        if opened is None:
            self.begin(HTTPStatus.SERVICE_UNAVAILABLE, {"Content-Length": "0", "Retry-After": "0"})
            return None
        file, size = opened
        try:
            self._send(file, version, name, start, min(end, size), size)
        except OSError:  # the neighbour went away, or takes nothing
            self.close_connection = True
        finally:
            os.close(file)
        return None

    def _send(self, file: int, version: str, name: str, start: int, end: int, size: int) -> None:
        self._begin_range(start, end, size)
        while start < end:
            ready = self._waited(
                lambda at=start: self.server.listener.shelf.available(name, version, at, _SLICE_S) - at  # type: ignore[misc]
            )
            if not ready:
                self.close_connection = True  # the rest does not come: the neighbour asks again
                break
            start += self._send_bytes(file, start, min(ready, end - start, _AT_ONCE))

    def _begin_range(self, start: int, end: int, size: int) -> None:
        span = {"Content-Length": str(end - start), "Content-Range": f"bytes {start}-{end - 1}/{size}"}
        self.begin(HTTPStatus.PARTIAL_CONTENT, span)

    def _send_bytes(self, file: int, start: int, count: int) -> int:
        if isinstance(self.connection, ssl.SSLSocket):
            data = os.pread(file, min(count, 1 << 20), start)
            self.connection.sendall(data)
            sent = len(data)
        else:
            sent = os.sendfile(self.connection.fileno(), file, start, count)
        if not sent:
            raise OSError("the file is shorter than it was")
        self.server.listener.count(sent)
        return sent

    def _waited(self, ask: Callable[[], Any]) -> Any:
        """What `ask` returns, asked again until it is something, or the neighbour is gone, or time is up."""
        deadline = time.monotonic() + BYTES_WAIT_S
        while not (answer := ask()):
            if time.monotonic() > deadline or self.server.listener.shelf.closed or _is_over(self.connection):
                break
        return answer


def _is_over(sock: socket.socket) -> bool:
    """Whether the peer has closed a connection, or sends what nobody asked for."""
    look = select.poll()
    look.register(sock, select.POLLIN)
    return bool(look.poll(0))
