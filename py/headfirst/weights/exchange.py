"""Messages between nodes over HTTP; both sides prove with the transfer's token that they may speak.

The token itself never travels: request and answer carry an HMAC over the body and a nonce of the request.
"""

from __future__ import annotations

import hmac
import secrets
import sys
import threading
from collections.abc import Collection
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

from headfirst.errors import NotReadyError
from headfirst.weights.board import Board
from headfirst.weights.manifest import check_name
from headfirst.weights.messages import Message, absorb, compose, parse, speak

LONGEST_WAIT_S = 5.0
"""How long an answer may wait for news."""
_ANSWER_LIMIT_S = 20.0
_LONGEST_BODY = 64 * 1024 * 1024
_NONCE, _PROOF, _WAIT = "X-Headfirst-Nonce", "X-Headfirst-Proof", "X-Headfirst-Wait"
_REFUSALS = {
    401: "its token is another one",
    403: "it does not know this host's address as a member",
}


class Refused(NotReadyError):
    """The other node is there and will not speak with this one; waiting does not help."""


class Listener:
    """Answers the members' messages on address:port. Use as a context manager."""

    def __init__(self, board: Board, address: str, port: int, members: Collection[str], token: str) -> None:
        try:
            self._server = _Server((address, port), _Handler)
        except OSError as error:
            raise NotReadyError(
                f"cannot listen on {address} port {port}: {error.strerror}",
                hint="Set weights_port to a free port, and address to one of this host's own.",
            ) from error
        self._server.board, self._server.members, self._server.token = board, frozenset(members), token
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)

    def __enter__(self) -> Listener:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Caller:
    """Speaks, from the address `own`, to one member at a time. Not safe to use from several threads."""

    def __init__(self, board: Board, own: str, port: int, token: str) -> None:
        self._board = board
        self._port = port
        self._token = token
        self._heard: dict[str, Message] = {}
        # trust_env off: the data network is not reached through the proxy for the internet.
        self._client = httpx.Client(transport=httpx.HTTPTransport(local_address=own), trust_env=False)

    def exchange(self, address: str, *, wait: bool, connect_limit_s: float = 5.0) -> None:
        """Tell `address` what it lacks and take what it says; `wait` lets it wait for news.

        Raises httpx.TransportError where it does not answer, Refused where it will not.
        """
        body = speak(self._board, self._heard.get(address))
        nonce = secrets.token_hex(16)
        headers = {_NONCE: nonce, _PROOF: _prove(self._token, "ask", nonce, body), _WAIT: str(int(wait))}
        limits = httpx.Timeout(_ANSWER_LIMIT_S, connect=connect_limit_s)
        url = f"http://{address}:{self._port}/"
        response = self._client.post(url, content=body, headers=headers, timeout=limits)
        if response.status_code != HTTPStatus.OK:
            why = _REFUSALS.get(response.status_code, f"it answers with status {response.status_code}")
            raise Refused(f"a node of the transfer refuses this one: {why}", where=url)
        expected = _prove(self._token, "answer", nonce, response.content)
        if not hmac.compare_digest(response.headers.get(_PROOF, ""), expected):
            raise Refused("what answers has not the transfer's token", where=url)
        self._heard[address] = _take(self._board, response.content)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    board: Board
    members: frozenset[str]
    token: str

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A neighbour that went away in the middle is no news; it asks again if it lives."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        """Refuse strangers before reading what they send."""
        length = int(self.headers.get("Content-Length", "0"))
        if self.client_address[0] not in self.server.members or length > _LONGEST_BODY:
            self.close_connection = True
            return self._answer(HTTPStatus.FORBIDDEN, b"")
        body = self.rfile.read(length)
        nonce = self.headers.get(_NONCE, "")
        if not hmac.compare_digest(
            self.headers.get(_PROOF, ""), _prove(self.server.token, "ask", nonce, body)
        ):
            return self._answer(HTTPStatus.UNAUTHORIZED, b"")
        board = self.server.board
        version = board.version
        try:
            heard = _take(board, body)
        except (ValueError, KeyError, TypeError):
            return self._answer(HTTPStatus.BAD_REQUEST, b"")
        reply = compose(board, heard)
        if self.headers.get(_WAIT) == "1" and not reply.files and reply.epoch == heard.epoch:
            board.wait(version, LONGEST_WAIT_S)
        data = speak(board, heard)
        return self._answer(HTTPStatus.OK, data, _prove(self.server.token, "answer", nonce, data))

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the job's progress tells how far everybody is."""

    def _answer(self, status: HTTPStatus, body: bytes, proof: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header(_PROOF, proof)
        self.end_headers()
        self.wfile.write(body)


def _take(board: Board, data: bytes) -> Message:
    with board.changed:  # it is read by the overview that is there now
        message = parse(data, board)
        for name in message.overview.sizes if message.overview else ():
            check_name(name, "the transfer")
        absorb(board, message)
    return message


def _prove(token: str, role: str, nonce: str, body: bytes) -> str:
    return hmac.new(token.encode(), f"{role} {nonce} ".encode() + body, "sha256").hexdigest()
