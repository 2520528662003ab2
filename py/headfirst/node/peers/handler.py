"""The part of a listener that admits requests: each is proven by its headers before its body is read."""

from __future__ import annotations

import re
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler

from headfirst.node.peers.bounded_server import BoundedServer
from headfirst.node.peers.membership import DIGEST, SESSION, Admission, digest

_LENGTH_FORM = re.compile(r"0|[1-9][0-9]{0,8}")


class PeerServer(BoundedServer):
    """A server whose requests `admission` checks, where each peer has no one of its own."""

    admission: Admission

    def admission_of(self, address: str) -> Admission:
        """What checks the requests from this address."""
        return self.admission


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
            own, address = self.connection.getsockname()[0], self.client_address[0]
            headers |= admission.not_a_member(dict(self.headers), own, address)
        self.begin(status, {**headers, SESSION: admission.session})

    def begin(self, status: HTTPStatus, headers: dict[str, str]) -> None:
        """Send the status and the headers."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: requests are many, and what matters is recorded elsewhere."""
