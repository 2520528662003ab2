"""How members prove to each other that they may take part, without sending their secret.

A request carries an HMAC, keyed with the members' token, over all that makes it unique: the session that
the listener chose when it started, the caller's name and its growing count, and what is asked for. So a
recorded request is refused by its listener and by all others, whatever the clocks show. An answer that is to
be believed carries an HMAC too, over the same words and over the digest of its body. So does the answer that
the caller is no member: over the caller's name and count, and both addresses, so that it is worth nothing to
another caller, or again.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
from collections.abc import Mapping
from http import HTTPStatus

SESSION, CALL, PROOF, DIGEST = (f"X-Headfirst-{name}" for name in ("Session", "Call", "Proof", "Digest"))
_SESSION_FORM = re.compile(r"[0-9a-f]{32}")
_CALL_FORM = re.compile(r"([0-9a-f]{32})-([1-9][0-9]{0,17})")
_MOST_CALLERS = 10_000  # that are remembered before the session is renewed


class Caller:
    """Signs the requests to one listener, one at a time. Not safe to use from several threads."""

    def __init__(self, token: str) -> None:
        self._token = token
        self.session = "0" * 32
        """The listener's, as far as it is known."""
        self._name = secrets.token_hex(16)
        self._count = 0
        self._words: tuple[str, ...] = ()

    def sign(self, *words: str) -> dict[str, str]:
        """Headers of a request for `words`."""
        self._count += 1
        self._words = (self.session, f"{self._name}-{self._count}", *words)
        return {
            SESSION: self._words[0],
            CALL: self._words[1],
            PROOF: _hmac(self._token, "ask", *self._words),
        }

    def learn(self, headers: Mapping[str, str]) -> None:
        """Take the session that the listener answers with, where it refused ours as an old one."""
        session = headers.get(SESSION) or ""
        if _SESSION_FORM.fullmatch(session):
            self.session = session

    def is_answer(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Whether a member answers the last request with this body."""
        return _equal(headers.get(PROOF) or "", _answer_proof(self._token, self._words, body))

    def is_refusal(self, token: str, headers: Mapping[str, str], listener: str, address: str) -> bool:
        """Whether who has `token` refuses the last request, since it comes from `address`."""
        return _equal(headers.get(PROOF) or "", _refusal_proof(token, self._words[1], listener, address))


class Admission:
    """Checks the requests that come to a listener. Safe to use from threads."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._calls: dict[str, int] = {}
        self._lock = threading.Lock()
        self.session = secrets.token_hex(16)

    def refusal(self, headers: Mapping[str, str], *words: str) -> HTTPStatus | None:
        """Why a request for `words` is refused; None where it is a member's, and was not made before."""
        call = _CALL_FORM.fullmatch(headers.get(CALL) or "")
        if call is None:
            return HTTPStatus.BAD_REQUEST
        session = self.session
        if headers.get(SESSION) != session:
            return HTTPStatus.CONFLICT
        proof = _hmac(self._token, "ask", session, call[0], *words)
        if not _equal(headers.get(PROOF) or "", proof) or not self._is_new(call[1], int(call[2])):
            return HTTPStatus.UNAUTHORIZED
        return None

    def answer(self, headers: Mapping[str, str], words: tuple[str, ...], body: bytes) -> dict[str, str]:
        """Headers that prove `body` to be the answer to the request with `headers`, which was admitted."""
        said = (headers.get(SESSION) or "", headers.get(CALL) or "", *words)
        return {PROOF: _answer_proof(self._token, said, body)}

    def not_a_member(self, headers: Mapping[str, str], listener: str, address: str) -> dict[str, str]:
        """Headers that prove to who sent the request with `headers` that its address is no member's."""
        call = _CALL_FORM.fullmatch(headers.get(CALL) or "")
        return {PROOF: _refusal_proof(self._token, call[0], listener, address)} if call else {}

    def _is_new(self, caller: str, count: int) -> bool:
        with self._lock:
            if count <= self._calls.get(caller, 0):
                return False
            if len(self._calls) >= _MOST_CALLERS:
                self._calls.clear()  # what was recorded in the session that ends is void
                self.session = secrets.token_hex(16)
            self._calls[caller] = count
        return True


def digest(body: bytes) -> str:
    """SHA-256 of a body, in hex."""
    return hashlib.sha256(body).hexdigest()


def _answer_proof(token: str, words: tuple[str, ...], body: bytes) -> str:
    return _hmac(token, "answer", *words, digest(body))


def _refusal_proof(token: str, call: str, listener: str, address: str) -> str:
    return _hmac(token, "refuse", call, listener, address)


def _hmac(token: str, *words: str) -> str:
    return hmac.new(token.encode(), " ".join(words).encode(), "sha256").hexdigest()


def _equal(digest: str, expected: str) -> bool:
    return hmac.compare_digest(digest.encode(), expected.encode())
