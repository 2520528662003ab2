"""One node's place in a transfer: what it offers to the others, what it brings from them, and their news."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from headfirst.node.weights.proof.hashing import FileHash
from headfirst.node.weights.transfer import chain
from headfirst.node.weights.transfer.board import Board
from headfirst.node.weights.transfer.chain import PATIENCE_S, Chain
from headfirst.node.weights.transfer.link import Link
from headfirst.node.weights.transfer.listener import TransferListener
from headfirst.node.weights.transfer.receiver import Event, Receiver
from headfirst.node.weights.transfer.shelf import Shelf
from headfirst.node.weights.transfer.signing import Key

CONNECTIONS = 2
_AVOIDED_S = 300.0  # where another member has a file: one that exchanges news and sends no bytes


@dataclass(frozen=True)
class Transfer:
    """What all members agree on, and which of them this node is.

    `members` are in the order of the ring, the head first; each has one or more addresses, all as many, of
    which the n-th ones reach each other. Every address listens on `port`. `connections` are opened to the
    member before, spread over the addresses. `key` is the head's, of which the others have the public half.
    """

    members: Sequence[Sequence[str]]
    index: int
    port: int
    token: str
    key: Key
    connections: int = CONNECTIONS
    encrypt: bool = False
    patience_s: float = PATIENCE_S


@dataclass(frozen=True)
class Traffic:
    """Bytes of files that this process sent and received."""

    sent: int = 0
    received: int = 0


class Transport:
    """Use as a context manager. Raises NotReadyError where it cannot listen; a member alone does not.

    `holders` returns the members that will have a file; only these are asked for it.
    """

    def __init__(self, transfer: Transfer, board: Board, holders: Callable[[str], Container[int]]) -> None:
        self._transfer = transfer
        self._holders = holders
        self._shelf = Shelf()
        server_side = client_side = None
        if transfer.encrypt:
            from headfirst.node.weights.transfer.encryption import contexts

            server_side, client_side = contexts(transfer.token)
        self._encryption = client_side
        others = [member for index, member in enumerate(transfer.members) if index != transfer.index]
        self._listener = TransferListener(
            transfer.members[transfer.index] if others else (),
            transfer.port,
            {address for member in others for address in member},
            transfer.token,
            lambda data, wait: chain.answer(board, data, wait),
            self._shelf,
            server_side,
        )
        self._silent_until: dict[int, float] = {}
        self._receiver = Receiver(
            self._shelf,
            self._source,
            lambda index, why: self.chain.pass_over(index, why),
            self._is_silent,
            self._link,
            transfer.connections,
        )
        self.chain = Chain(
            board, lambda index: self._link(0, index), self._receiver.reroute, transfer.patience_s
        )
        self._stack = ExitStack()

    def __enter__(self) -> Transport:
        self._stack.enter_context(self._listener)
        self._stack.callback(self._shelf.close)
        self._stack.callback(self._receiver.close)
        self._stack.enter_context(self.chain)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def traffic(self) -> Traffic:
        """What was sent and received so far."""
        return Traffic(self._listener.sent, self._receiver.received)

    def address(self, index: int) -> str:
        """A member's first address."""
        return self._transfer.members[index][0]

    def offer(self, name: str, proof: FileHash, path: Path) -> None:
        """Offer the file `path`, which is whole and proven."""
        self._receiver.forget(name)
        self._shelf.put(name, proof, path, whole=True)

    def receive(self, name: str, proof: FileHash, path: Path) -> None:
        """Bring `path`; also resumes it. Pieces are offered to others as they come."""
        self._receiver.receive(name, proof, path)

    def move(self, name: str, path: Path) -> None:
        """Take note that an offered file has another path now."""
        self._shelf.move(name, path)

    def forget(self, name: str) -> None:
        """Neither bring nor offer a file any more; what is there stays."""
        self._receiver.forget(name)
        self._shelf.drop(name)

    def events(self, timeout: float) -> list[Event]:
        """What was finished or failed since the last call; waits up to `timeout` seconds for the first."""
        return self._receiver.events(timeout)

    def progress(self) -> dict[str, int]:
        """Bytes of proven pieces by file."""
        return self._shelf.bytes_here()

    def _source(self, name: str) -> int | None:
        holders, now = self._holders(name), time.monotonic()
        able = [index for index in self.chain.reachable if index in holders]
        return min(able, key=lambda index: self._silent_until.get(index, 0) > now, default=None)

    def _is_silent(self, index: int) -> None:
        self._silent_until[index] = time.monotonic() + _AVOIDED_S

    def _link(self, number: int, index: int) -> Link:
        transfer = self._transfer
        local, remote = transfer.members[transfer.index], transfer.members[index]
        lane = number % len(local)
        return Link(local[lane], remote[lane], transfer.port, transfer.token, self._encryption)
