"""What strangers and broken members can do to the bytes of files: nothing, and they hold nobody up."""

from __future__ import annotations

import http.client
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from headfirst.node.peers.authentication import Caller
from headfirst.node.weights.proof.hashing import PIECE
from headfirst.node.weights.transfer import link as links
from headfirst.node.weights.transfer import listener
from headfirst.node.weights.transfer.board import Board
from headfirst.node.weights.transfer.link import PeerRefused, Unreachable
from headfirst.node.weights.transfer.listener import TransferListener
from transfer_hosts import (
    KEY,
    PORT,
    TOKEN,
    Source,
    Start,
    await_that,
    exchange_news,
    hosts,
    linked,
    read,
    serving,
    start,
)
from wire_tap import tapped

__all__ = ["hosts", "start"]  # fixtures


def handlers() -> int:
    """Threads of listeners that answer a connection."""
    return sum("process_request_thread" in thread.name for thread in threading.enumerate())


@pytest.fixture
def source(tmp_path: Path) -> Source:
    (tmp_path / "outside").write_text("not for anybody")
    return Source(tmp_path / "files", file=2 * PIECE)


@pytest.fixture
def head(hosts: list[str], source: Source, monkeypatch: pytest.MonkeyPatch) -> Iterator[TransferListener]:
    """Offers `source` to the second and the third host, and waits for bytes for a moment only."""
    monkeypatch.setattr(listener, "BYTES_WAIT_S", 0.1)
    monkeypatch.setattr(listener, "_SLICE_S", 0.05)
    with serving(source, hosts[0], hosts[1:3]) as head:
        yield head


class Member:
    """Sends whatever it is given, with a member's valid proof."""

    def __init__(self, own: str, address: str) -> None:
        self._caller = Caller(TOKEN)
        self._own, self._address = own, address

    def ask(
        self, path: str, span: str | None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes, dict[str, str]]:
        for _ in range(2):
            wire = http.client.HTTPConnection(self._address, PORT, timeout=5, source_address=(self._own, 0))
            wire.putrequest("GET", "/", skip_accept_encoding=True)
            wire._buffer[0] = f"GET {path} HTTP/1.1".encode()  # type: ignore[attr-defined]
            spans = {} if span is None else {"Range": span}
            for name, value in {
                **spans,
                **self._caller.sign("GET", path, span or ""),
                **(headers or {}),
            }.items():
                wire.putheader(name, value)
            wire.endheaders()
            answer = wire.getresponse()
            found = answer.status, answer.read(), dict(answer.headers)
            wire.close()
            if found[0] != 409:
                break
            self._caller.learn(found[2])
        return found


@pytest.fixture
def member(hosts: list[str], head: TransferListener) -> Member:
    return Member(hosts[1], hosts[0])


def test_a_range_is_answered_with_just_its_bytes(member: Member, source: Source) -> None:
    version, data = source.proofs["sub/file"].version, (source.folder / "sub/file").read_bytes()
    for first, last in ((0, 0), (0, PIECE - 1), (PIECE - 1, PIECE), (2 * PIECE - 1, 2 * PIECE - 1)):
        status, body, headers = member.ask(f"/{version}/sub/file", f"bytes={first}-{last}")
        assert (status, body) == (206, data[first : last + 1])
        assert headers["Content-Range"] == f"bytes {first}-{last}/{2 * PIECE}"
    status, body, headers = member.ask(f"/{version}/sub/file", f"bytes=5-{10**17}")
    assert (status, body) == (206, data[5:])
    assert headers["Content-Range"] == f"bytes 5-{2 * PIECE - 1}/{2 * PIECE}"


@pytest.mark.parametrize(
    "span",
    [
        None,
        "",
        "bytes=0-",
        "bytes=-5",
        "bytes=5-1",
        "bytes=0-1,4-5",
        "bytes=00-1",
        "bytes= 0-1",
        "bytes=0x0-1",
        "bytes=0-+1",
        "bytes=0-1 ",
        "bytes=\u0660-1",
        "items=0-1",
        "bytes=0-" + "9" * 19,
        "bytes=" + "9" * 5000 + "-" + "9" * 5000,
    ],
)
def test_a_range_that_is_none_is_refused(
    member: Member, head: TransferListener, source: Source, span: str | None
) -> None:
    if span and not span.isascii():
        span = span.encode().decode("latin-1")
    path = f"/{source.proofs['sub/file'].version}/sub/file"
    status, body, _ = member.ask(path, span)
    assert (status, body) == (400, b"")
    assert head.sent == 0


@pytest.mark.parametrize("first", [2 * PIECE, 2 * PIECE + 1, 10**17])
def test_a_range_beyond_the_end_is_refused_at_once(
    member: Member, source: Source, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "BYTES_WAIT_S", 30)
    path = f"/{source.proofs['sub/file'].version}/sub/file"
    assert member.ask(path, f"bytes={first}-{first + 1}")[:2] == (416, b"")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/{v}/", 400),
        ("/{v}", 400),
        ("/", 400),
        ("/sub/file", 400),
        ("//{v}/sub/file", 401),
        ("/{V}/sub/file", 400),
        ("/{v}0/sub/file", 400),
        ("/{v}/sub/file?x", 400),
        ("/{v}/sub/file#x", 400),
        ("http://h/{v}/sub/file", 400),
        ("/{v}/" + "x" * 5000, 400),
        ("/{v}/../outside", 503),
        ("/{v}/sub/../../outside", 503),
        ("/{v}/%2e%2e/outside", 503),
        ("/{v}/..%2foutside", 503),
        ("/{v}/%252e%252e/outside", 503),
        ("/{v}//etc/passwd", 503),
        ("/{v}/%2fetc%2fpasswd", 503),
        ("/{v}/{folder}/outside", 503),
        ("/{v}/sub", 503),
        ("/{v}/sub/./file", 503),
        ("/{v}/sub/file%00", 503),
        ("/{v}/sub/file%00.txt", 503),
        ("/{v}/%ff%fe", 503),
        ("/{v}/SUB/FILE", 503),
    ],
)
def test_only_names_of_offered_files_are_found(
    member: Member, head: TransferListener, source: Source, path: str, expected: int
) -> None:
    version = source.proofs["sub/file"].version
    path = path.format(v=version, V=version.upper(), folder=source.folder.parent)
    if version.upper() == version:
        pytest.skip("a version without letters")
    assert member.ask(path, "bytes=0-9")[:2] == (expected, b"")
    assert head.sent == 0


def test_a_request_with_a_body_or_another_method_is_refused(
    member: Member, hosts: list[str], source: Source
) -> None:
    path = f"/{source.proofs['sub/file'].version}/sub/file"
    assert member.ask(path, "bytes=0-1", {"Content-Length": "5"})[0] == 400
    for method in ("HEAD", "PUT", "DELETE", "OPTIONS", "CONNECT", "x" * 300):
        wire = http.client.HTTPConnection(hosts[0], PORT, timeout=5, source_address=(hosts[1], 0))
        wire.request(method, path)
        assert wire.getresponse().status == 501
        wire.close()


def _send(own: str, address: str, data: bytes) -> bytes:
    with socket.create_connection((address, PORT), source_address=(own, 0), timeout=5) as wire:
        wire.sendall(data)
        wire.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: wire.recv(65536), b""))


def test_a_recorded_request_for_bytes_is_answered_by_nobody(
    hosts: list[str], head: TransferListener, source: Source
) -> None:
    version = source.proofs["sub/file"].version
    with tapped(hosts[2], hosts[0], PORT) as tap:
        link = linked(hosts[1], hosts[2])
        assert len(read(link.request(version, "sub/file", 0, PIECE), PIECE)) == PIECE
        link.close()
        good = bytes(tap.asked[1])
    sent = head.sent
    assert b" 401 " in _send(hosts[1], hosts[0], good), "the same request again"
    with serving(source, hosts[3], hosts[1:3]) as other:
        assert b" 409 " in _send(hosts[1], hosts[3], good), "the same request to another member"
        assert other.sent == 0
    for changed in (
        re.sub(rb"-1(\r\nX-Headfirst-Proof)", rb"-3\1", good.replace(b"-2\r\n", b"-3\r\n")),
        good.replace(b"-2\r\n", b"-3\r\n").replace(b"bytes=0-", b"bytes=1-"),
        good.replace(b"-2\r\n", b"-3\r\n").replace(b"sub/file", b"sub/fil%65"),
    ):
        assert changed != good
        assert b" 401 " in _send(hosts[1], hosts[0], changed)
    assert head.sent == sent
    assert TOKEN.encode() not in tap.all


@pytest.mark.parametrize("encrypt", [False, True])
def test_a_client_that_leaves_while_it_waits_frees_its_thread(
    hosts: list[str], source: Source, encrypt: bool
) -> None:
    with serving(source, hosts[0], [hosts[1]], encrypt=encrypt):
        await_that(lambda: not handlers())
        link = linked(hosts[1], hosts[0], encrypt=encrypt)
        reader = threading.Thread(target=lambda: _ignore(lambda: link.request("0" * 32, "later", 0, 5)))
        reader.start()
        await_that(lambda: handlers() == 1)
        time.sleep(0.2)
        link.cut()
        await_that(lambda: not handlers(), 3)


def test_a_client_that_takes_nothing_is_cut_off(
    hosts: list[str], source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "_SEND_LIMIT_S", 1)
    large = Source(source.folder.parent / "large", file=32 * PIECE)
    with serving(large, hosts[0], [hosts[1]]) as head:
        await_that(lambda: not handlers())
        link = linked(hosts[1], hosts[0])
        body = link.request(large.proofs["sub/file"].version, "sub/file", 0, 32 * PIECE)
        assert handlers()
        await_that(lambda: not handlers(), 8)
        assert head.sent < 32 * PIECE
        with pytest.raises(Unreachable):
            read(body, 32 * PIECE)
        link.close()


def test_a_closed_listener_answers_no_more_on_old_connections(hosts: list[str], source: Source) -> None:
    version = source.proofs["sub/file"].version
    link = linked(hosts[1], hosts[0])
    with serving(source, hosts[0], [hosts[1]]):
        read(link.request(version, "sub/file", 0, PIECE), PIECE)
    with pytest.raises(Unreachable):
        link.request(version, "sub/file", 0, PIECE)
    link.close()


# What comes from the other side.


@contextmanager
def impostor(address: str, answer: bytes, then: bytes = b"", pause: float = 0.0) -> Iterator[None]:
    """Answers each connection with `answer`, then `then` again and again, until the caller hangs up."""

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.recv(65536)
            connection.sendall(answer)
            while then:
                connection.sendall(then)
                time.sleep(pause)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 5, 0))
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server((address, PORT)) as server:
        threading.Thread(target=accept, daemon=True).start()
        try:
            yield
        finally:
            server.shutdown(socket.SHUT_RDWR)


OK = b"HTTP/1.1 206 Partial Content\r\n"
RANGE = b"Content-Range: bytes 0-9/10\r\n"
LENGTH = b"Content-Length: 10\r\n"


@pytest.mark.parametrize(
    ("answer", "then", "pause"),
    [
        (OK + RANGE + b"Content-Length: 11\r\n\r\n" + b"x" * 11, b"", 0),
        (OK + RANGE + b"Content-Length: 9\r\n\r\n" + b"x" * 9, b"", 0),
        (OK + RANGE + b"Content-Length: -1\r\n\r\n", b"x" * 65536, 0),
        (OK + RANGE + b"Content-Length: x\r\n\r\n", b"x" * 65536, 0),
        (OK + RANGE + b"\r\n", b"x" * 65536, 0),
        (OK + RANGE + b"Transfer-Encoding: chunked\r\n\r\n", b"5\r\nxxxxx\r\n", 0),
        (OK + LENGTH + b"\r\n" + b"x" * 10, b"", 0),
        (OK + LENGTH + b"Content-Range: bytes 1-10/20\r\n\r\n" + b"x" * 10, b"", 0),
        (OK + LENGTH + b"Content-Range: bytes 0-90/100\r\n\r\n" + b"x" * 10, b"", 0),
        (OK + LENGTH + RANGE + b"Connection: close\r\n\r\n" + b"x" * 10, b"", 0),
        (b"HTTP/1.0 206 OK\r\n" + LENGTH + RANGE + b"\r\n" + b"x" * 10, b"", 0),
        (b"HTTP/1.1 200 OK\r\n" + LENGTH + b"\r\n" + b"x" * 10, b"", 0),
        (b"HTTP/1.1 409 Conflict\r\nContent-Length: 99999999999\r\n\r\n", b"x" * 65536, 0),
        (b"HTTP/1.1 503 Unavailable\r\nContent-Length: 99999999999\r\n\r\n", b"x" * 65536, 0),
        (b"HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\n\r\n", b"", 0),
        (b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", 0),
        (OK, b"X: y\r\n", 0),
        (OK + b"X: ", b"y" * 65536, 0),
        (b"", b"x" * 65536, 0),
        (b"SSH-2.0-x\r\n", b"", 0),
        (b"", b"", 0),
        (OK, b"x", 0.05),
        (b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", 0.05),
        (OK + LENGTH, b"", 0),
    ],
)
def test_an_answer_that_is_none_is_refused_in_bounded_time(
    hosts: list[str], monkeypatch: pytest.MonkeyPatch, answer: bytes, then: bytes, pause: float
) -> None:
    monkeypatch.setattr(links, "SILENCE_LIMIT_S", 1.0)
    monkeypatch.setattr(links, "PIECE_LIMIT_S", 1.0)
    link = linked(hosts[1], hosts[0])
    began = time.monotonic()
    with impostor(hosts[0], answer, then, pause):
        with pytest.raises((*Unreachable, PeerRefused)):
            read(link.request("0" * 32, "file", 0, 10), 10)
        link.close()
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("then", [b"", b"x"])
def test_bytes_that_come_too_slowly_are_not_waited_for(
    hosts: list[str], monkeypatch: pytest.MonkeyPatch, then: bytes
) -> None:
    monkeypatch.setattr(links, "SILENCE_LIMIT_S", 1.0)
    monkeypatch.setattr(links, "PIECE_LIMIT_S", 1.5)
    head = OK + b"Content-Range: bytes 0-9999/10000\r\nContent-Length: 10000\r\n\r\nx"
    link = linked(hosts[1], hosts[0])
    with impostor(hosts[0], head, then, 0.05):
        body = link.request("0" * 32, "file", 0, 10_000)
        began = time.monotonic()
        with pytest.raises(Unreachable):
            read(body, 10_000)
        link.close()
    assert time.monotonic() - began < 20


def test_a_redirect_is_not_followed(hosts: list[str], head: TransferListener, source: Source) -> None:
    version = source.proofs["sub/file"].version
    place = f"http://{hosts[0]}:{PORT}/{version}/sub/file".encode()
    moved = b"HTTP/1.1 302 Found\r\nLocation: " + place + b"\r\nContent-Length: 0\r\n\r\n"
    with impostor(hosts[3], moved), pytest.raises(PeerRefused, match="status 302"):
        linked(hosts[1], hosts[3]).request(version, "sub/file", 0, PIECE)
    assert head.sent == 0


def test_news_that_are_cut_off_are_no_strangers(hosts: list[str]) -> None:
    """A member that is killed while it answers is asked again."""
    cut = b"HTTP/1.1 200 OK\r\nX-Headfirst-Proof: 00\r\nContent-Length: 500\r\n\r\n{"
    with impostor(hosts[0], cut), pytest.raises(Unreachable):
        exchange_news(Board(1, 2, KEY), hosts[1], hosts[0])


def test_wrong_bytes_of_an_impostor_are_not_kept(
    hosts: list[str], start: Start, tmp_path: Path, source: Source
) -> None:
    """One that took the address of a member that had been proven."""
    node = start(1, 2)
    node.chain.upstream = 0
    size = 2 * PIECE
    lie = b"Content-Range: bytes 0-%d/%d\r\nContent-Length: %d\r\n\r\n" % (size - 1, size, size)
    with impostor(hosts[0], OK + lie + bytes(size)):
        source.receive(node, tmp_path / "got")
        node._receiver._source = lambda _name: 0
        [event] = node.events(10)
    assert getattr(event, "why", "") == f"{hosts[0]} sends other bytes than this file's"
    assert (tmp_path / "got/sub/file").stat().st_blocks == 0


def test_a_member_that_has_nothing_is_not_asked_without_end(
    hosts: list[str], start: Start, tmp_path: Path, source: Source
) -> None:
    asked: list[float] = []
    node = start(1, 2)
    request = links.Link.request

    def counted(self: links.Link, *arguments: object) -> object:
        asked.append(time.monotonic())
        return request(self, *arguments)  # type: ignore[arg-type]

    empty = b"HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n"
    with pytest.MonkeyPatch.context() as patch, impostor(hosts[0], empty):
        patch.setattr(links.Link, "request", counted)
        node._receiver._source = lambda _name: 0
        source.receive(node, tmp_path / "got")
        time.sleep(1.5)
        assert 2 <= len(asked) <= 10 * 2


def _ignore(act: Callable[[], object]) -> None:
    with suppress(*Unreachable, PeerRefused):
        act()
