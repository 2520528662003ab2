"""Members of a transfer on loopback addresses, in this process, and random files for them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import pytest
from headfirst.node.weights.proof.hashing import PIECE, FileHash, hash_file
from headfirst.node.weights.transfer import chain, listener
from headfirst.node.weights.transfer.board import Board
from headfirst.node.weights.transfer.chain import Exchange
from headfirst.node.weights.transfer.encryption import contexts
from headfirst.node.weights.transfer.link import Body, Link
from headfirst.node.weights.transfer.listener import TransferListener
from headfirst.node.weights.transfer.receiver import Failed, ReceivedFile
from headfirst.node.weights.transfer.shelf import Shelf
from headfirst.node.weights.transfer.signing import Key
from headfirst.node.weights.transfer.transport import Transfer, Transport

PORT = 17460
TOKEN = "t0ken"
KEY = Key.new()
LIMIT_S = 20.0
_networks = count(1)

Start = Callable[..., Transport]


@pytest.fixture
def hosts() -> list[str]:
    """Four addresses that no other test has used."""
    network = f"127.{os.getpid() % 200 + 2}.{next(_networks)}"
    return [f"{network}.{number}" for number in range(1, 5)]


@pytest.fixture
def start(hosts: list[str]) -> Iterator[Start]:
    """Start the member `index` of those with the first `count` addresses; it is ended with the test."""
    with ExitStack() as stack:

        def make(index: int, count: int = 3, **options: object) -> Transport:
            members = options.pop("members", [[host] for host in hosts[:count]])
            options = {"token": TOKEN, "port": PORT, "key": KEY, **options}
            transfer = Transfer(members, index, **options)  # type: ignore[arg-type]
            everybody = range(len(transfer.members))
            board = Board(index, len(everybody), KEY)
            return stack.enter_context(Transport(transfer, board, lambda _name: everybody))

        yield make


class Source:
    """A folder with random files, the first of which is in a folder of its own."""

    def __init__(self, folder: Path, **sizes: int) -> None:
        self.folder = folder
        self.proofs: dict[str, FileHash] = {}
        for number, (key, size) in enumerate(sizes.items()):
            name = f"sub/{key}" if number == 0 else key
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(os.urandom(size))
            self.proofs[name] = hash_file(path)

    @property
    def size(self) -> int:
        return sum(proof.size for proof in self.proofs.values())

    def offer(self, node: Transport) -> None:
        for name, proof in self.proofs.items():
            node.offer(name, proof, self.folder / name)

    def receive(self, node: Transport, folder: Path) -> None:
        for name, proof in self.proofs.items():
            node.receive(name, proof, folder / name)

    def comes_to(self, node: Transport, folder: Path) -> None:
        """The node receives all files, as they are here."""
        self.receive(node, folder)
        await_names(node, self.proofs)
        assert self.same(folder)

    def same(self, folder: Path) -> bool:
        return all((folder / name).read_bytes() == (self.folder / name).read_bytes() for name in self.proofs)


def await_names(node: Transport, names: Collection[str], limit: float = LIMIT_S) -> None:
    """Wait until `names` are finished; nothing may fail."""
    missing = set(names)
    deadline = time.monotonic() + limit
    while missing:
        assert time.monotonic() < deadline, f"not finished in {limit} s: {missing}"
        for event in node.events(0.1):
            assert isinstance(event, ReceivedFile), event
            missing.discard(event.name)


def await_failure(node: Transport, limit: float = LIMIT_S) -> Failed:
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        for event in node.events(0.1):
            if isinstance(event, Failed):
                return event
    raise AssertionError("nothing failed")


def await_that(happened: Callable[[], object], limit: float = LIMIT_S) -> None:
    deadline = time.monotonic() + limit
    while not happened():
        assert time.monotonic() < deadline, f"not in {limit} s"
        time.sleep(0.02)


@pytest.fixture
def rate(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, float]]:
    """`rate["at"]`: bytes a second that each connection may send: a slow link, made where it is easiest."""
    limit = {"at": float("inf")}
    send = listener._TransferHandler._send_bytes

    def slowly(self: listener._TransferHandler, file: int, start: int, size: int) -> int:
        sent = send(self, file, start, min(size, PIECE) if limit["at"] < float("inf") else size)
        time.sleep(sent / limit["at"])
        return sent

    monkeypatch.setattr(listener._TransferHandler, "_send_bytes", slowly)
    yield limit
    limit["at"] = float("inf")


# The parts of a member, each alone.


@contextmanager
def serving(
    source: Source,
    address: str,
    peers: Collection[str],
    token: str = TOKEN,
    *,
    encrypt: bool = False,
) -> Iterator[TransferListener]:
    """A listener with all files of `source`, and no news."""
    shelf, board = Shelf(), Board(0, 2, KEY)
    for name, proof in source.proofs.items():
        shelf.put(name, proof, source.folder / name, whole=True)
    side = contexts(token)[0] if encrypt else None
    with TransferListener(
        [address],
        PORT,
        peers,
        token,
        lambda data, wait: chain.answer(board, data, wait),
        shelf,
        side,
    ) as listener:
        yield listener


def linked(own: str, address: str, token: str = TOKEN, *, encrypt: bool = False) -> Link:
    return Link(own, address, PORT, token, contexts(token)[1] if encrypt else None)


def read(body: Body, size: int) -> bytes:
    data = bytearray(size)
    body.fill(memoryview(data))
    return bytes(data)


def listening(
    board: Board, address: str, peers: Collection[str], token: str = TOKEN, *, port: int = PORT
) -> TransferListener:
    """Only news are exchanged."""
    return TransferListener(
        [address], port, peers, token, lambda data, wait: chain.answer(board, data, wait), Shelf()
    )


def exchange_news(board: Board, own: str, address: str, token: str = TOKEN, *, port: int = PORT) -> None:
    """Once, from the address `own`."""
    caller = Exchange(board, lambda _index: Link(own, address, port, token))
    try:
        caller.with_member(0, wait=False)
    finally:
        caller.close()
