"""Messages between nodes over HTTP; both sides prove with the transfer's token that they may speak.

The token itself never travels. Request and answer carry an HMAC over the digest of the body and over what
makes the request unique: the session that the listener chose when it started, the caller's name and its
growing count. So a recorded request is refused by its listener and by all others, whatever the clocks show.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
import time
from collections.abc import Collection
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler

import httpx

from headfirst.errors import NotReadyError
from headfirst.untrusted import UntrustedError
from headfirst.weights.board import Board
from headfirst.weights.bounded_server import BoundedServer
from headfirst.weights.messages import LONGEST, Message, absorb, compose, parse, speak

LONGEST_WAIT_S = 5.0
"""How long an answer may wait for news."""
_ANSWER_LIMIT_S = 20.0
_SILENCE_LIMIT_S = 10.0
_SESSION, _CALL, _DIGEST, _PROOF, _WAIT = (
    f"X-Headfirst-{name}" for name in ("Session", "Call", "Digest", "Proof", "Wait")
)
_SESSION_FORM = re.compile(r"[0-9a-f]{32}")
_CALL_FORM = re.compile(r"([0-9a-f]{32})-([1-9][0-9]{0,17})")
_LENGTH_FORM = re.compile(r"0|[1-9][0-9]{0,8}")
_MOST_CALLERS = 10_000
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
            self._server = _Server((address, port), board, members, token)
        except OSError as error:
            raise NotReadyError(
                f"cannot listen on {address} port {port}: {error.strerror}",
                hint="Set weights_port to a free port, and address to one of this host's own.",
            ) from error
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
        self._name = secrets.token_hex(16)
        self._count = 0
        self._sessions: dict[str, str] = {}
        self._heard: dict[str, Message] = {}
        # trust_env off: the data network is not reached through the proxy for the internet.
        self._client = httpx.Client(transport=httpx.HTTPTransport(local_address=own), trust_env=False)

    def exchange(self, address: str, *, wait: bool, connect_limit_s: float = 5.0) -> None:
        """Tell `address` what it lacks and take what it says; `wait` lets it wait for news.

        Raises httpx.TransportError where it does not answer, Refused where it will not.
        """
        url = f"http://{address}:{self._port}/"
        limits = httpx.Timeout(_ANSWER_LIMIT_S, connect=connect_limit_s)
        status, session, data = self._post(address, url, limits, wait=wait)
        if status == HTTPStatus.CONFLICT:  # it was started since, or is called for the first time
            self._sessions[address] = session
            status, _, data = self._post(address, url, limits, wait=wait)
        if status != HTTPStatus.OK:
            why = _REFUSALS.get(status, f"it answers with status {status}")
            raise Refused(f"a node of the transfer refuses this one: {why}", where=url)
        try:
            self._heard[address] = _take(self._board, data)
        except UntrustedError as error:
            raise Refused(f"a node of the transfer sends nonsense: {error.what}", where=url) from error

    def _post(self, address: str, url: str, limits: httpx.Timeout, *, wait: bool) -> tuple[int, str, bytes]:
        """Status, session and body of the answer; the body of a good one is authentic."""
        body = speak(self._board, self._heard.get(address))
        self._count += 1
        session, call = self._sessions.get(address, "0" * 32), f"{self._name}-{self._count}"
        digest, waits = _digest(body), str(int(wait))
        headers = {
            _SESSION: session,
            _CALL: call,
            _DIGEST: digest,
            _WAIT: waits,
            _PROOF: _prove(self._token, "ask", session, call, digest, str(len(body)), waits),
            "Accept-Encoding": "identity",
        }
        with self._client.stream("POST", url, content=body, headers=headers, timeout=limits) as answer:
            data = _bounded(answer, url)
        if answer.status_code == HTTPStatus.OK:
            proof = _prove(self._token, "answer", session, call, _digest(data))
            if not _equal(answer.headers.get(_PROOF, ""), proof):
                raise Refused("what answers has not the transfer's token", where=url)
        given = answer.headers.get(_SESSION, "")
        return answer.status_code, given if _SESSION_FORM.fullmatch(given) else session, data


class _Server(BoundedServer):
    def __init__(self, place: tuple[str, int], board: Board, members: Collection[str], token: str) -> None:
        self.board, self.token = board, token
        self._calls: dict[str, int] = {}
        self._calls_lock = threading.Lock()
        self.session = secrets.token_hex(16)
        super().__init__(place, _Handler, members)

    def is_new(self, call: str) -> bool:
        """Take note of an authentic call; False where it, or a later one of its caller, was made before."""
        caller, count = _CALL_FORM.fullmatch(call).groups()  # type: ignore[union-attr]  # the handler has matched it
        with self._calls_lock:
            if int(count) <= self._calls.get(caller, 0):
                return False
            if len(self._calls) >= _MOST_CALLERS:  # what was recorded in the session that ends is void
                self._calls.clear()
                self.session = secrets.token_hex(16)
            self._calls[caller] = int(count)
        return True


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = _SILENCE_LIMIT_S

    def do_POST(self) -> None:
        """Authenticate by the headers alone; only then read the body, whose length and digest they prove."""
        length, call, digest = (self.headers.get(name, "") for name in ("Content-Length", _CALL, _DIGEST))
        if (
            "Transfer-Encoding" in self.headers
            or not _LENGTH_FORM.fullmatch(length)
            or not _CALL_FORM.fullmatch(call)
        ):
            return self._refuse(HTTPStatus.BAD_REQUEST)
        if int(length) > LONGEST:
            return self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        session = self.server.session
        if self.headers.get(_SESSION, "") != session:
            return self._refuse(HTTPStatus.CONFLICT)
        waits = self.headers.get(_WAIT, "")
        proof = _prove(self.server.token, "ask", session, call, digest, length, waits)
        if not _equal(self.headers.get(_PROOF, ""), proof) or not self.server.is_new(call):
            return self._refuse(HTTPStatus.UNAUTHORIZED)
        self.server.prove(self.connection)
        body = self.rfile.read(int(length))
        if _digest(body) != digest:
            return self._refuse(HTTPStatus.BAD_REQUEST)
        board = self.server.board
        version = board.version
        try:
            heard = _take(board, body)
        except UntrustedError:
            return self._refuse(HTTPStatus.BAD_REQUEST)
        reply = compose(board, heard)
        if waits == "1" and not reply.files and reply.epoch == heard.epoch:
            board.wait(version, LONGEST_WAIT_S)
        data = speak(board, heard)
        proof = _prove(self.server.token, "answer", session, call, _digest(data))
        return self._answer(HTTPStatus.OK, data, {_PROOF: proof})

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the job's progress tells how far everybody is."""

    def _refuse(self, status: HTTPStatus) -> None:
        """The body is not read, so the connection cannot be used again."""
        self.close_connection = True
        self._answer(status, b"", {_SESSION: self.server.session, "Connection": "close"})

    def _answer(self, status: HTTPStatus, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def _bounded(answer: httpx.Response, url: str) -> bytes:
    """The body, whose sender is not yet known: no longer, and not for longer, than a member's can be."""
    deadline = time.monotonic() + _ANSWER_LIMIT_S
    body = bytearray()
    for chunk in answer.iter_raw():
        body += chunk
        if len(body) > LONGEST:
            raise Refused(f"what answers sends more than {LONGEST} bytes", where=url)
        if time.monotonic() > deadline:
            raise httpx.ReadTimeout("the answer takes too long")
    return bytes(body)


def _take(board: Board, data: bytes) -> Message:
    with board.changed:  # it is read by the overview that is there now
        message = parse(data, board)
        absorb(board, message)
    return message


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _prove(token: str, *words: str) -> str:
    return hmac.new(token.encode(), " ".join(words).encode(), "sha256").hexdigest()


def _equal(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())
