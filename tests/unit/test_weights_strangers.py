"""What strangers can do to the port where members exchange news: nothing, and they hold nobody up."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from headfirst.common.untrusted import UntrustedError
from headfirst.node.peers import authentication, server
from headfirst.node.peers.server import PER_PEER
from headfirst.node.weights.proof.hashing import PIECE, FileHash, hash_file
from headfirst.node.weights.transfer import link
from headfirst.node.weights.transfer.board import Board, Overview
from headfirst.node.weights.transfer.link import PeerRefused, Unreachable
from headfirst.node.weights.transfer.messages import VERSION, compose, parse, speak
from headfirst.node.weights.transfer.signing import file_statement
from together import together
from transfer_hosts import KEY, TOKEN, exchange_news, listening
from wire_tap import tapped

PORT = 23_000 + os.getpid() % 900
HEAD, MEMBER, STRANGER, TAP = (f"127.0.7.{number}" for number in range(1, 5))


@pytest.fixture
def head() -> Iterator[Board]:
    board = Board(0, 3, KEY)
    board.describe(Overview(1, {"model": "m"}, {"a": 1}))
    with listening(board, HEAD, [MEMBER, TAP], port=PORT):
        yield board


def connect(own: str, target: str = HEAD) -> socket.socket:
    return socket.create_connection((target, PORT), source_address=(own, 0), timeout=15)


def send(head: bytes, own: str = MEMBER, target: str = HEAD) -> bytes:
    """All that comes back until the connection is closed by the other side."""
    with connect(own, target) as connection:
        connection.sendall(head)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def status(answer: bytes) -> int:
    return int(answer.split(b" ")[1])


def is_served() -> bool:
    """Whether a member is answered, as it would be: it tries again when it is cut off."""
    member = Board(1, 3, KEY)
    for _ in range(20):
        try:
            exchange_news(member, MEMBER, HEAD, port=PORT)
            break
        except Unreachable:
            time.sleep(0.25)
    return member.overview is not None


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (b"Content-Length: -1", 400),
        (b"Content-Length: +5", 400),
        (b"Content-Length: 5 5", 400),
        (b"Content-Length: 0x10", 400),
        (b"Content-Length: 99999999999999999999", 400),
        (b"X-None: 1", 400),
        (b"Transfer-Encoding: chunked", 400),
        (b"Content-Length: 5\r\nTransfer-Encoding: chunked", 400),
        (b"Content-Length: 999999999", 413),
    ],
)
def test_a_body_without_a_valid_length_is_not_read(head: Board, lines: bytes, expected: int) -> None:
    call = b"X-Headfirst-Call: " + b"0" * 32 + b"-1"
    assert status(send(b"POST / HTTP/1.1\r\nHost: h\r\n" + call + b"\r\n" + lines + b"\r\n\r\n")) == expected
    assert is_served()


def test_a_body_is_read_only_after_its_sender_is_proven(head: Board) -> None:
    """The answer comes while the body is still due."""
    session = send(b"POST / HTTP/1.1\r\nContent-Length: 9\r\nX-Headfirst-Call: " + b"0" * 32 + b"-1\r\n\r\n")
    assert status(session) == 409
    given = next(line for line in session.split(b"\r\n") if line.startswith(b"X-Headfirst-Session"))
    request = (
        b"POST / HTTP/1.1\r\nContent-Length: 60000000\r\n"
        + given
        + b"\r\nX-Headfirst-Call: "
        + b"0" * 32
        + b"-1\r\nX-Headfirst-Proof: 00\r\n\r\n"
    )
    assert status(send(request)) == 401


def test_an_address_that_is_no_member_is_refused_before_it_sends_anything(head: Board) -> None:
    assert status(send(b"", own=STRANGER)) == 403


@pytest.mark.parametrize("own", [STRANGER, MEMBER])
def test_300_silent_connections_hold_few_threads_and_nobody_up(head: Board, own: str) -> None:
    before = threading.active_count()
    with ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(connect(own))
        most = 0
        for _ in range(5):
            assert is_served()
            most = max(most, threading.active_count())
        assert most - before <= 2 * PER_PEER


def test_who_sends_slowly_is_cut_off(head: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_UNPROVEN_LIMIT_S", 0.5)
    with connect(MEMBER) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\n")
        with pytest.raises(OSError):
            for _ in range(200):  # never silent for long
                connection.sendall(b"X")
                time.sleep(0.1)
    assert is_served()


def test_a_recorded_request_is_answered_by_nobody(head: Board) -> None:
    with tapped(TAP, HEAD, PORT) as tap:
        exchange_news(Board(1, 3, KEY), MEMBER, TAP, port=PORT)
        first, good = (bytes(data) for data in tap.asked)
    assert status(send(first)) == 409
    assert status(send(good)) == 401, "the same request again"
    with listening(Board(0, 3, KEY), STRANGER, [MEMBER], port=PORT):
        assert status(send(good, target=STRANGER)) == 409, "the same request to another member"
    for changed in (
        good.replace(b"-2\r\n", b"-3\r\n"),
        good.replace(b"X-Headfirst-Wait: 0", b"X-Headfirst-Wait: 1"),
        good[:-1] + b" ",
    ):
        assert changed != good
        assert status(send(changed)) == 401
    assert TOKEN.encode() not in tap.all


def test_a_recorded_answer_is_not_taken(head: Board) -> None:
    with tapped(TAP, HEAD, PORT) as tap:
        exchange_news(Board(1, 3, KEY), MEMBER, TAP, port=PORT)
        answer = bytes(tap.answered[1])
    board = Board(1, 3, KEY)
    with socket.create_server((STRANGER, PORT)) as impostor:
        threading.Thread(target=_answer_once, args=(impostor, answer), daemon=True).start()
        with pytest.raises(PeerRefused, match="does not have the transfer's token"):
            exchange_news(board, MEMBER, STRANGER, port=PORT)
    assert board.overview is None


def test_an_endless_answer_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "LONGEST", 1 << 20)
    endless = b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n" + bytes(4 << 20)
    with socket.create_server((STRANGER, PORT)) as impostor:
        threading.Thread(target=_answer_once, args=(impostor, endless), daemon=True).start()
        with pytest.raises(PeerRefused, match="more than 1048576 bytes"):
            exchange_news(Board(1, 3, KEY), MEMBER, STRANGER, port=PORT)


def _answer_once(server: socket.socket, answer: bytes) -> None:
    connection, _ = server.accept()
    with connection, suppress(OSError):  # the caller hangs up
        connection.sendall(answer)
        while connection.recv(65536):
            pass


def test_when_many_callers_were_heard_what_was_recorded_stays_void(
    head: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authentication, "_MOST_CALLERS", 2)
    with tapped(TAP, HEAD, PORT) as tap:
        exchange_news(Board(1, 3, KEY), MEMBER, TAP, port=PORT)
        good = bytes(tap.asked[1])
    for _ in range(4):
        assert is_served()
    assert status(send(good)) == 409


MEMBERS = {"0": {"beat": 1, "ready": True, "have": "1", "wants": "0", "received": 1, "converted": 0,
                 "done": False, "error": "", "fetches": False, "doubts": False, "fetched": 0,
                 "given": ["1"]}}  # fmt: skip
PROOF: dict[str, Any] = {"size": 1, "xxh3": "0" * 32, "sha256": None, "pieces": "A" * 43 + "="}
OVERVIEW = {"epoch": 2, "made_from": {}, "sizes": {"a": 1}, "known": {"a": "0" * 32}, "sha256": {}}


def signed(overview: dict[str, Any]) -> dict[str, Any]:
    return {**overview, "signature": KEY.sign(Overview(**overview).statement)}


PROOF["signature"] = KEY.sign(file_statement({}, "a", FileHash(1, "0" * 32, None, bytes(32))))
GOOD = {"version": VERSION, "epoch": 2, "known": "1", "claimed": "0", "members": MEMBERS,
        "files": {"a": PROOF}, "overview": signed(OVERVIEW)}  # fmt: skip


def with_member(**changes: object) -> dict[str, object]:
    return {**GOOD, "members": {"0": {**MEMBERS["0"], **changes}}}


def with_proof(**changes: object) -> dict[str, object]:
    return {**GOOD, "files": {"a": {**PROOF, **changes}}}


def with_overview(**changes: object) -> dict[str, object]:
    return {**GOOD, "overview": signed({**OVERVIEW, **changes})}


MALFORMED = {
    "a list": [],
    "another version": {**GOOD, "version": 1},
    "claimed that is no mask": {**GOOD, "claimed": "x"},
    "overview of another epoch": with_overview(epoch=3),
    "no members": {**GOOD, "members": None},
    "epoch as text": {**GOOD, "epoch": "2"},
    "negative epoch": {**GOOD, "epoch": -1},
    "mask that is none": {**GOOD, "known": "-1"},
    "huge mask": {**GOOD, "known": "f" * 100_000},
    "member -1": {**GOOD, "members": {"-1": MEMBERS["0"]}},
    "member 3 of 3": {**GOOD, "members": {"3": MEMBERS["0"]}},
    "member of many digits": {**GOOD, "members": {"1" * 5000: MEMBERS["0"]}},
    "member without a beat": {**GOOD, "members": {"0": {}}},
    "received as text": with_member(received="1"),
    "negative received": with_member(received=-1),
    "ready as text": with_member(ready="yes"),
    "error as a list": with_member(error=["x"]),
    "fetches as a number": with_member(fetches=1),
    "fetched as text": with_member(fetched="1"),
    "given as a mask": with_member(given="1"),
    "given to more members than there are": with_member(given=["1"] * 4),
    "given that is no mask": with_member(given=["x"]),
    "given that is nested": with_member(given=[["1"]]),
    "proof with an absolute name": {**GOOD, "files": {"/etc/passwd": PROOF}},
    "proof with a negative size": with_proof(size=-1),
    "xxh3 that is short": with_proof(xxh3="00"),
    "sha256 that is none": with_proof(sha256="x" * 64),
    "a digest that is short": with_proof(pieces="AAAA"),
    "digests of more pieces": with_proof(pieces="A" * 86 + "=="),
    "digests of fewer pieces": with_proof(size=2 * PIECE),
    "digests that are no base64": with_proof(pieces="A" * 42 + "\u00e9="),
    "digests as a number": with_proof(pieces=1),
    "no digests": with_proof(pieces=None),
    "too many proofs": {**GOOD, "files": {str(number): PROOF for number in range(9)}},
    "name with ..": with_overview(sizes={"../a": 1}, known={}),
    "hidden name": with_overview(sizes={".ssh/x": 1}, known={}),
    "name with a backslash": with_overview(sizes={"a\\b": 1}, known={}),
    "names that clash": with_overview(sizes={"a": 1, "A": 1}, known={}),
    "a file that is a folder": with_overview(sizes={"a": 1, "a/b": 1}, known={}),
    "size as a float": with_overview(sizes={"a": 1.0}),
    "size of 2**60": with_overview(sizes={"a": 2**60}),
    "known file that is none": with_overview(known={"b": "0" * 32}),
    "known xxh3 that is none": with_overview(known={"a": "zz"}),
    "sha256 of a file that is none": with_overview(sha256={"b": "0" * 64}),
    "listed sha256 that is none": with_overview(sha256={"a": "zz"}),
    "signature that is short": with_proof(signature="00"),
    "no signature": with_proof(signature=None),
    "origin with a line feed": with_overview(made_from={"model": "a\nb"}),
    "origin with a number": with_overview(made_from={"model": 1}),
}


@together("case", MALFORMED)
def test_a_malformed_message_is_refused(case: str) -> None:
    parse(json.dumps(GOOD).encode(), Board(1, 3, KEY))
    with pytest.raises(UntrustedError) as refusal:
        parse(json.dumps(MALFORMED[case]).encode(), Board(1, 3, KEY))
    assert "has not signed" not in refusal.value.what
    assert "version" not in refusal.value.what or case == "another version"


@pytest.mark.parametrize("data", [b"", b"{", b"[" * 100_000, b'{"epoch": 1, "epoch": 2}', b"\xff\xfe"])
def test_a_message_that_is_no_json_is_refused(data: bytes) -> None:
    with pytest.raises(UntrustedError):
        parse(data, Board(1, 3, KEY))


def test_an_error_of_a_member_reaches_no_terminal_as_a_command() -> None:
    message = parse(json.dumps(with_member(error="bad\x1b]0;title\x07\x1b[2J")).encode(), Board(1, 3, KEY))
    assert message.members[0].error == "bad"


def test_a_real_message_with_many_pieces_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * (5 * PIECE + 1))
    proof = hash_file(tmp_path / "a", with_sha256=True)
    board, member = Board(0, 3, KEY), Board(1, 3, KEY)
    board.describe(Overview(1, {"model": "m"}, {"a": proof.size}))
    board.announce({"a": proof})
    assert parse(speak(board, compose(member, None)), member).files == board.claims()
