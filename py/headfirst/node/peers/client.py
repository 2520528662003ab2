"""Asks a peer: one signed POST, a connection each, with a limit for the whole of it."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus

from headfirst.node.peers.authentication import DIGEST, Caller, digest

_CHUNK = 64 * 1024
# Of three tries to connect, one second and then two apart, one comes through where some packets are lost.
_CONNECT_LIMIT_S = 4.0

Unreachable = (OSError, http.client.HTTPException)
"""What is raised where a peer does not answer, refuses, or is none."""


class NotAMember(ConnectionRefusedError):
    """The peer proves that it does not list this host's address."""


class PeerClient:
    """Asks peers at `port` from the address `local_address`. Safe to use from threads.

    `keys`, by the peers' addresses, prove requests and answers; `token` proves refusals of those that are no
    peers of `local_address` any more.
    """

    def __init__(self, local_address: str, port: int, token: str, keys: Mapping[str, str]) -> None:
        self._local_address, self._port, self._token, self._keys = local_address, port, token, keys
        self._sessions: dict[str, str] = {}

    def ask(self, address: str, body: bytes, *, limit_s: float, longest: int) -> bytes:
        """The answer of at most `longest` bytes. Raises Unreachable."""
        ends = time.monotonic() + limit_s
        status, answer = self._send(address, body, ends, longest)
        if status == HTTPStatus.CONFLICT:  # the peer was started since
            status, answer = self._send(address, body, ends, longest)
        if status != HTTPStatus.OK:
            raise ConnectionRefusedError(f"{address} answers with status {status}")
        return answer

    def _send(self, address: str, body: bytes, ends: float, longest: int) -> tuple[int, bytes]:
        if address not in self._keys:
            raise ConnectionRefusedError(f"{address} is no member")
        caller = Caller(self._keys[address])
        caller.session = self._sessions.get(address, caller.session)
        words = ("POST", digest(body), str(len(body)), self._local_address, address)
        headers = {DIGEST: words[1], **caller.sign(*words)}
        rest = max(0.1, ends - time.monotonic())
        connection = http.client.HTTPConnection(
            address, self._port, timeout=min(rest, _CONNECT_LIMIT_S), source_address=(self._local_address, 0)
        )
        connection.connect()
        rest = max(0.1, ends - time.monotonic())
        connection.sock.settimeout(rest)
        end = threading.Timer(rest, _end, [connection.sock])  # the timeout of a socket is one for each read
        end.start()
        try:
            connection.request("POST", "/", body, headers)
            answer = connection.getresponse()
            headers = dict(answer.headers)
            if answer.status == HTTPStatus.CONFLICT:
                caller.learn(headers)
                self._sessions[address] = caller.session
            if answer.status == HTTPStatus.FORBIDDEN and caller.is_refusal(
                self._token, headers, address, self._local_address
            ):
                raise NotAMember(f"{address} does not list {self._local_address} as a member")
            if answer.status != HTTPStatus.OK:
                return answer.status, b""
            data = _bounded(answer, ends, longest)
            if not caller.is_answer(headers, data):
                raise ConnectionError(f"{address} has another secret than the members")
            return answer.status, data
        finally:
            end.cancel()
            connection.close()


def _end(connected: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it is closed already
        connected.shutdown(socket.SHUT_RDWR)


def _bounded(answer: http.client.HTTPResponse, ends: float, longest: int) -> bytes:
    """The body, whose sender is not proven yet."""
    body = bytearray()
    while chunk := answer.read1(_CHUNK):
        body += chunk
        if len(body) > longest:
            raise ConnectionError(f"an answer of more than {longest} bytes")
        if time.monotonic() > ends:
            raise TimeoutError("the answer takes too long")
    return bytes(body)
