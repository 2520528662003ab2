"""What breaks while files are copied: continued, with every byte that is sent again counted."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import headfirst
import pytest
from headfirst.node.weights.proof.hashing import PIECE
from headfirst.node.weights.transfer import chain, link, listener
from headfirst.node.weights.transfer.receiver import Failed
from transfer_hosts import (
    PORT,
    TOKEN,
    Source,
    Start,
    await_failure,
    await_names,
    await_that,
    hosts,
    rate,
    start,
)

__all__ = ["hosts", "rate", "start"]  # fixtures

_NODE = """
import json, sys, time
from pathlib import Path
from headfirst.node.weights.transfer import chain
chain.NEWS_WAIT_S = 0.5
from headfirst.node.weights.proof.hashing import FileHash
from headfirst.node.weights.transfer.board import Board
from headfirst.node.weights.transfer.signing import Key
from headfirst.node.weights.transfer.transport import Transfer, Transport
KEY = Key.new()
head, own, port, token, folder = sys.argv[1:]
folder = Path(folder)
transfer = Transfer([[head], [own]], 1, int(port), token, KEY)
size, xxh3, pieces = json.loads((folder / "proof").read_text())
with Transport(transfer, Board(1, 2, KEY), lambda _name: (0, 1)) as node:
    node.receive("sub/file", FileHash(size, xxh3, None, bytes.fromhex(pieces)), folder / "node/sub/file")
    while node.progress()["sub/file"] < size / 3:
        time.sleep(0.02)
    print("a third is here", flush=True)
    time.sleep(60)
"""


def _node(source: Source, hosts: list[str], folder: Path) -> subprocess.Popen[bytes]:
    """The second host as a process, which receives the file into `folder`."""
    proof = source.proofs["sub/file"]
    (folder / "proof").write_text(f'[{proof.size}, "{proof.xxh3}", "{proof.pieces.hex()}"]')
    return subprocess.Popen(
        [sys.executable, "-c", _NODE, hosts[0], hosts[1], str(PORT), TOKEN, str(folder)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(headfirst.__file__).parents[1])},
    )


@pytest.mark.parametrize("sent", [None, 0, PIECE // 2])
def test_a_member_that_exchanges_news_and_sends_no_bytes_is_left_for_another(
    sent: int | None, hosts: list[str], start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, over = Source(tmp_path / "head", file=8 * PIECE), threading.Event()
    answer_range = listener._TransferHandler._answer_range

    def answer(self: listener._TransferHandler, version: str, name: str, *span: int) -> None:
        if self.server.server_address[0] != hosts[1]:
            return answer_range(self, version, name, *span)
        if sent is not None:  # a disk that hangs
            self._begin_range(*span, source.size)
            self.wfile.write(bytes(sent))
        over.wait()
        return None

    monkeypatch.setattr(listener._TransferHandler, "_answer_range", answer)
    monkeypatch.setattr(link, "SILENCE_LIMIT_S", 1.0)
    for index in (0, 1):
        source.offer(start(index))
    node = start(2)
    source.receive(node, tmp_path / "node")
    try:
        await_names(node, source.proofs)
    finally:
        over.set()
    assert source.same(tmp_path / "node")


def test_a_killed_node_fetches_only_what_it_lacks(
    hosts: list[str], start: Start, tmp_path: Path, rate: dict[str, float]
) -> None:
    source = Source(tmp_path / "head", file=32 * PIECE + 5)
    head = start(0, 2)
    source.offer(head)
    rate["at"] = 8 * PIECE
    node = _node(source, hosts, tmp_path)
    assert node.stdout
    with node.stdout as output:
        assert output.readline() == b"a third is here\n"
    node.send_signal(signal.SIGKILL)
    node.wait()
    rate["at"] = float("inf")

    lacking = source.size - _right_bytes(source.folder / "sub/file", tmp_path / "node/sub/file")
    assert lacking < 25 * PIECE
    again = start(1, 2)
    source.comes_to(again, tmp_path / "node")
    assert again.traffic.received == lacking


def _right_bytes(original: Path, copy: Path) -> int:
    """Bytes of those pieces of `copy` that are as in `original`."""
    with original.open("rb") as one, copy.open("rb") as other:
        pairs = iter(lambda: (one.read(PIECE), other.read(PIECE)), (b"", b""))
        return sum(len(right) for right, found in pairs if right == found)


def _flip(path: Path, *offsets: int) -> None:
    """Change a bit of some bytes; the file looks unchanged otherwise."""
    before = path.stat()
    with path.open("r+b") as file:
        for offset in offsets:
            file.seek(offset)
            byte = file.read(1)
            file.seek(offset)
            file.write(bytes([byte[0] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_only_pieces_with_flipped_bytes_are_fetched(start: Start, tmp_path: Path) -> None:
    source = Source(tmp_path / "head", file=32 * PIECE + 5)
    copy = tmp_path / "node/sub/file"
    copy.parent.mkdir(parents=True)
    copy.write_bytes((source.folder / "sub/file").read_bytes())
    _flip(copy, 0, 5 * PIECE + 1000, 31 * PIECE - 1, 32 * PIECE + 4)
    head, node = start(0, 2), start(1, 2)
    source.offer(head)
    source.comes_to(node, tmp_path / "node")
    assert node.traffic.received == 3 * PIECE + 5
    assert head.traffic.sent == 3 * PIECE + 5


def test_a_relay_that_is_gone_is_left_out(
    start: Start, tmp_path: Path, rate: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain, "_GRACE_S", 0.5)
    source = Source(tmp_path / "head", file=32 * PIECE)
    head, relay, last = (start(index) for index in range(3))
    source.offer(head)
    rate["at"] = 8 * PIECE
    source.receive(relay, tmp_path / "relay")
    source.receive(last, tmp_path / "last")
    await_that(lambda: sum(last.progress().values()) >= 8 * PIECE)
    relay.__exit__()
    rate["at"] = float("inf")
    await_names(last, source.proofs)
    assert source.same(tmp_path / "last")
    assert last.traffic.received == source.size, "no byte came twice"


def test_a_relay_that_comes_back_is_asked_again(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain, "_GRACE_S", 0.5)
    monkeypatch.setattr(chain, "_TRY_NEARER_EVERY_S", 0.5)
    monkeypatch.setattr(chain, "NEWS_WAIT_S", 0.2)
    source = Source(tmp_path / "head", file=4 * PIECE)
    head, last = start(0), start(2)
    source.offer(head)
    source.receive(last, tmp_path / "last")
    await_names(last, source.proofs)
    sent = head.traffic.sent
    relay = start(1)
    source.receive(relay, tmp_path / "relay")
    await_names(relay, source.proofs)
    await_that(lambda: last._source("sub/file") == 1)
    last.forget("sub/file")
    source.comes_to(last, tmp_path / "again")
    assert (head.traffic.sent, relay.traffic.sent) == (sent + source.size, source.size)


def test_a_full_disk_fails_and_is_continued(start: Start, tmp_path: Path) -> None:
    source = Source(tmp_path / "head", file=16 * PIECE)
    head, node = start(0, 2), start(1, 2)
    source.offer(head)
    copy = tmp_path / "node/sub/file"
    copy.parent.mkdir(parents=True)
    copy.touch()
    os.truncate(copy, 16 * PIECE)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8 * PIECE, hard))
    try:
        source.receive(node, tmp_path / "node")
        assert await_failure(node) == Failed("sub/file", "File too large")
        assert node.events(0.5) == []
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    lacking = 16 * PIECE - _right_bytes(source.folder / "sub/file", copy)
    assert lacking < 16 * PIECE
    before = node.traffic.received
    source.comes_to(node, tmp_path / "node")
    assert node.traffic.received - before == lacking


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda path: _flip(path, PIECE + 5), "{} sends other bytes than this file's"),
        (lambda path: os.truncate(path, PIECE + 5), "{} has lost its copy of this file"),
        (lambda path: path.unlink(), "{} has lost its copy of this file"),
    ],
)
def test_a_source_that_was_changed_is_named(
    hosts: list[str], start: Start, tmp_path: Path, spoil: Callable[[Path], None], why: str
) -> None:
    source = Source(tmp_path / "head", file=4 * PIECE)
    head, node = start(0, 2), start(1, 2)
    source.offer(head)
    spoil(source.folder / "sub/file")
    source.receive(node, tmp_path / "node")
    assert await_failure(node) == Failed("sub/file", why.format(hosts[0]), wrong=True)
    received = node.traffic.received
    assert received <= 3 * 4 * PIECE
    assert node.events(0.5) == []
    assert node.traffic.received == received, "it is not asked for without end"


def test_a_source_that_is_mended_in_time_is_not_named(start: Start, tmp_path: Path) -> None:
    """A piece that came wrong once is asked for again, and the pieces after it too."""
    source = Source(tmp_path / "head", file=4 * PIECE)
    head, node = start(0, 2), start(1, 2)
    source.offer(head)
    _flip(source.folder / "sub/file", PIECE + 5)
    source.receive(node, tmp_path / "node")
    await_that(lambda: node.traffic.received >= 2 * PIECE)
    _flip(source.folder / "sub/file", PIECE + 5)
    await_names(node, source.proofs)
    assert source.same(tmp_path / "node")
    assert node.traffic.received < 3 * 4 * PIECE


def test_a_node_that_stands_still_is_left_out_and_comes_back(
    hosts: list[str], start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped as by a debugger: its kernel still takes connections."""
    monkeypatch.setattr(link, "ANSWER_LIMIT_S", 2.0)
    source = Source(tmp_path / "head", file=8 * PIECE)
    head = start(0, 2)
    source.offer(head)
    node = _node(source, hosts, tmp_path)
    try:
        await_that(lambda: head.chain.upstream == 1)
        node.send_signal(signal.SIGSTOP)
        await_that(lambda: head.chain.upstream is None)
        node.send_signal(signal.SIGCONT)
        await_that(lambda: head.chain.upstream == 1)
        assert node.stdout
        assert node.stdout.readline() == b"a third is here\n"
    finally:
        node.kill()
        node.communicate()


def test_a_relay_that_is_started_again_at_once_is_kept(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it had been silent, as there was no news."""
    monkeypatch.setattr(chain, "_GRACE_S", 1.5)
    linked_to: list[int | None] = []
    take = chain.Chain._link_to

    def noted(self: chain.Chain, upstream: int | None) -> None:
        if self._board.index == 2:
            linked_to.append(upstream)
        take(self, upstream)

    monkeypatch.setattr(chain.Chain, "_link_to", noted)
    _head, relay, last = (start(index) for index in range(3))
    await_that(lambda: last.chain.upstream == 1)
    time.sleep(1.7)
    relay.__exit__()
    start(1)
    time.sleep(1)
    assert linked_to == [1]
