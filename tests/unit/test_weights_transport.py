"""Copies between members on loopback addresses: whole, in a chain, and only to members."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from headfirst.node.weights.proof.hashing import PIECE, hash_file
from headfirst.node.weights.transfer import listener
from headfirst.node.weights.transfer.board import Board
from headfirst.node.weights.transfer.chain import Exchange
from headfirst.node.weights.transfer.link import Body, Link, PeerRefused
from headfirst.node.weights.transfer.listener import TransferListener
from headfirst.node.weights.transfer.shelf import Shelf
from transfer_hosts import (
    KEY,
    PORT,
    TOKEN,
    Source,
    Start,
    await_names,
    await_that,
    hosts,
    linked,
    rate,
    read,
    serving,
    start,
)

__all__ = ["hosts", "rate", "start"]  # fixtures


@pytest.mark.parametrize("encrypt", [False, True])
@pytest.mark.parametrize("connections", [1, 2, 4])
def test_a_chain_copies_everything_and_the_head_sends_each_byte_once(
    start: Start, tmp_path: Path, connections: int, encrypt: bool
) -> None:
    source = Source(tmp_path / "0", tiny=100, piece=PIECE, more=PIECE + 1, large=20 * PIECE, last=5_000_001)
    nodes = [start(index, 4, connections=connections, encrypt=encrypt) for index in range(4)]
    source.offer(nodes[0])
    for index in (1, 2, 3):
        source.receive(nodes[index], tmp_path / str(index))
    for index in (1, 2, 3):
        await_names(nodes[index], source.proofs)
        assert source.same(tmp_path / str(index))
        assert nodes[index].traffic.received == source.size
    assert [node.traffic.sent for node in nodes] == [source.size] * 3 + [0]
    assert sum(nodes[3].progress().values()) == source.size


def test_each_address_of_a_member_carries_a_part(
    hosts: list[str], start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    carried: dict[tuple[str, str], int] = {}
    request = Link.request

    def counted(self: Link, version: str, name: str, first: int, end: int) -> Body:
        own = self._connection.source_address[0]  # type: ignore[index]
        carried[own, self.address] = carried.get((own, self.address), 0) + end - first
        return request(self, version, name, first, end)

    monkeypatch.setattr(Link, "request", counted)
    source = Source(tmp_path / "0", file=64 * PIECE)
    members = [hosts[:2], hosts[2:]]
    head, node = (start(index, members=members, connections=2) for index in (0, 1))
    source.offer(head)
    source.comes_to(node, tmp_path / "1")
    assert carried.keys() == {(hosts[2], hosts[0]), (hosts[3], hosts[1])}
    assert sum(carried.values()) == head.traffic.sent == source.size


def test_a_member_before_receives_from_one_after_it(start: Start, tmp_path: Path) -> None:
    source = Source(tmp_path / "2", file=4 * PIECE)
    first, _middle, last = (start(index) for index in range(3))
    source.offer(last)
    source.comes_to(first, tmp_path / "0")


@pytest.mark.parametrize("encrypt", [False, True])
def test_who_is_no_member_gets_nothing(hosts: list[str], start: Start, tmp_path: Path, encrypt: bool) -> None:
    source = Source(tmp_path / "head", file=PIECE)
    head = start(0, encrypt=encrypt)
    source.offer(head)
    stranger = start(1, members=[[hosts[0]], [hosts[3]]], encrypt=encrypt, patience_s=0.5)
    source.receive(stranger, tmp_path / "stranger")
    await_that(lambda: stranger.chain.failure)
    assert encrypt or "does not list this host's address" in str(stranger.chain.failure)
    assert stranger.events(0.5) == []
    proof = source.proofs["sub/file"]
    with pytest.raises((PeerRefused, OSError)):
        linked(hosts[3], hosts[0], encrypt=encrypt).request(proof.version, "sub/file", 0, PIECE)
    assert head.traffic.sent == stranger.traffic.received == 0


@pytest.mark.parametrize("encrypt", [False, True])
def test_who_does_not_have_the_token_gets_nothing(
    hosts: list[str], start: Start, tmp_path: Path, encrypt: bool
) -> None:
    source = Source(tmp_path / "head", file=PIECE)
    head = start(0, encrypt=encrypt)
    source.offer(head)
    other = start(1, token="guess", encrypt=encrypt)
    source.receive(other, tmp_path / "other")
    await_that(lambda: other.chain.failure)
    why = "does not have the transfer's token" if encrypt else "its token differs"
    assert why in str(other.chain.failure)
    assert isinstance(other.chain.failure, PeerRefused)
    assert other.events(0.5) == []
    proof = source.proofs["sub/file"]
    with pytest.raises(PeerRefused, match=why):
        linked(hosts[1], hosts[0], "guess", encrypt=encrypt).request(proof.version, "sub/file", 0, PIECE)
    assert head.traffic.sent == 0


def test_a_forgotten_file_is_offered_no_more_and_stays(start: Start, tmp_path: Path) -> None:
    source = Source(tmp_path / "head", one=PIECE, two=PIECE)
    head, node = start(0, 2), start(1, 2)
    source.offer(head)
    head.forget("two")
    source.receive(node, tmp_path / "node")
    await_names(node, {"sub/one"})
    assert node.events(1.0) == []
    assert (tmp_path / "head/two").is_file()
    head.offer("two", source.proofs["two"], source.folder / "two")
    await_names(node, {"two"})


def test_a_reader_waits_for_bytes_that_come_later(hosts: list[str], tmp_path: Path) -> None:
    source = Source(tmp_path, file=3 * PIECE + 5)
    path, proof = tmp_path / "sub/file", source.proofs["sub/file"]
    shelf = Shelf()
    shelf.put("file", proof, path, whole=False)
    came: list[bytes] = []

    def bring() -> None:
        body = linked(hosts[1], hosts[0]).request(proof.version, "file", PIECE, proof.size)
        came.extend(read(body, size) for size in (PIECE, PIECE, 5))

    with TransferListener([hosts[0]], PORT, [hosts[1]], TOKEN, lambda *_: b"", shelf):
        reader = threading.Thread(target=bring)
        reader.start()
        for piece in (3, 1):
            time.sleep(0.3)
            assert not came
            shelf.add("file", piece)
        await_that(lambda: len(came) == 1)
        time.sleep(0.3)
        assert len(came) == 1, "the last piece is there, the one before it is not"
        shelf.add("file", 2)
        reader.join(5)
    assert b"".join(came) == path.read_bytes()[PIECE:]


def test_a_file_of_another_version_is_not_sent(
    hosts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "BYTES_WAIT_S", 0.1)
    monkeypatch.setattr(listener, "_SLICE_S", 0.05)
    source = Source(tmp_path, file=PIECE)
    with serving(source, hosts[0], [hosts[1]]) as head:
        link = linked(hosts[1], hosts[0])
        with pytest.raises(ConnectionError, match="sub/file is not there yet"):
            link.request("0" * 32, "sub/file", 0, PIECE)
        assert head.sent == 0
        assert read(link.request(source.proofs["sub/file"].version, "sub/file", 0, PIECE), PIECE)
        link.close()


def test_a_version_that_is_replaced_while_it_comes_leaves_no_byte_behind(
    start: Start, tmp_path: Path, rate: dict[str, float]
) -> None:
    """Its pieces are neither written nor reported after that, however late they are."""
    head, node = start(0, 2, connections=4), start(1, 2, connections=4)
    rate["at"] = 40 * PIECE
    got = tmp_path / "got"
    for version in range(5):
        source = Source(tmp_path / f"head{version}", file=24 * PIECE)
        source.offer(head)
        source.receive(node, got)
        await_that(lambda: sum(node.progress().values()) > 3 * PIECE)
        assert node.events(0) == []
    rate["at"] = float("inf")
    await_names(node, source.proofs)
    assert source.same(got)


def test_an_event_of_an_earlier_version_is_not_reported(start: Start, tmp_path: Path) -> None:
    head, node = start(0, 2), start(1, 2)
    old = Source(tmp_path / "old", file=PIECE)
    old.offer(head)
    old.receive(node, tmp_path / "got")
    await_that(lambda: sum(node.progress().values()) == PIECE)
    time.sleep(0.1)
    new = Source(tmp_path / "new", file=PIECE)
    new.receive(node, tmp_path / "got")
    assert node.events(0.5) == []
    new.offer(head)
    await_names(node, new.proofs)
    assert new.same(tmp_path / "got")


def test_a_longer_file_that_was_there_is_cut(start: Start, tmp_path: Path) -> None:
    source = Source(tmp_path / "head", file=PIECE + 7)
    head, node = start(0, 2), start(1, 2)
    source.offer(head)
    copy = tmp_path / "node/sub/file"
    copy.parent.mkdir(parents=True)
    copy.write_bytes((source.folder / "sub/file").read_bytes() + b"more")
    source.comes_to(node, tmp_path / "node")
    assert node.traffic.received == 0


def test_a_link_in_the_place_of_a_part_is_not_followed(start: Start, tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"kept")
    proof = hash_file(tmp_path / "victim")
    (tmp_path / "part").symlink_to(tmp_path / "victim")
    node = start(1)
    node.receive("file", proof, tmp_path / "part")
    [event] = node.events(5)
    assert getattr(event, "why", "") == os.strerror(40)
    assert (tmp_path / "victim").read_bytes() == b"kept"


def test_nothing_is_left_open(start: Start, tmp_path: Path, hosts: list[str]) -> None:
    """No descriptor, no thread, of files that were received, forgotten or never checked."""

    def open_files() -> int:
        opened = 0
        for descriptor in Path("/proc/self/fd").iterdir():
            with suppress(OSError):  # it was that of the folder
                opened += str(descriptor.readlink()).startswith(str(tmp_path))
        return opened

    head, node = start(0, 2), start(1, 2)
    source = Source(tmp_path / "head", **{f"file{number}": 2 * PIECE for number in range(20)})
    source.receive(node, tmp_path / "node")
    for name in source.proofs:
        node.forget(name)
    await_that(lambda: open_files() == 0, 5)
    source.offer(head)
    source.receive(node, tmp_path / "node")
    await_names(node, source.proofs)
    await_that(lambda: open_files() == 0, 5)


def test_a_waiting_transport_closes_at_once(start: Start, tmp_path: Path, hosts: list[str]) -> None:
    source = Source(tmp_path / "head", file=2 * PIECE)
    threads = threading.active_count()
    head, node = start(0, 2), start(1, 2)
    source.receive(node, tmp_path / "node")
    source.receive(head, tmp_path / "other")
    await_that(lambda: node._receiver._active and head._receiver._active)  # each waits for the other
    time.sleep(0.3)
    for member in (node, head):
        began = time.monotonic()
        member.__exit__()
        assert time.monotonic() - began < 10
    await_that(lambda: threading.active_count() <= threads, 5)


def test_an_exchange_that_is_cut_ends(hosts: list[str]) -> None:
    """Also where it had not begun."""
    news = Exchange(Board(1, 2, KEY), lambda _index: linked(hosts[1], hosts[0]))
    news.cut()
    with pytest.raises(ConnectionError, match="has ended"):
        news.with_member(0, wait=True)


def test_a_connection_carries_many_requests(
    hosts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected: list[Link] = []
    connect = Link._connect

    def counted(self: Link) -> None:
        connected.append(self)
        connect(self)

    monkeypatch.setattr(Link, "_connect", counted)
    source = Source(tmp_path, file=2 * PIECE)
    version = source.proofs["sub/file"].version
    with serving(source, hosts[0], [hosts[1]]):
        link = linked(hosts[1], hosts[0])
        news = Exchange(Board(1, 2, KEY), lambda _index: link)
        for _ in range(3):
            news.with_member(0, wait=False)
            assert len(read(link.request(version, "sub/file", 0, PIECE), PIECE)) == PIECE
        link.close()
    assert len(connected) == 2, "the first one learned the session"
