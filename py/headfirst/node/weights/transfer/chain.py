"""Keeps a node linked to the nearest member before it that answers, and the boards of the two equal.

Each exchange of news, a request and its answer, brings two boards closer to being equal. The members form a
ring in their order: each hears from the one before it, the first from the last. Where that one is gone, its
predecessor takes its place until it is back. One that sends what is wrong is passed over for good.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress

from headfirst.common.errors import NotReadyError
from headfirst.common.untrusted import UntrustedError
from headfirst.node.weights.transfer.board import Board
from headfirst.node.weights.transfer.link import Link, PeerRefused, Unreachable, Untrue
from headfirst.node.weights.transfer.listener import NEWS_WAIT_S
from headfirst.node.weights.transfer.messages import TransferMessage, absorb, compose, parse, speak

PATIENCE_S = 180.0
_GRACE_S = 3.0  # a process that is started again answers within this time
_TRY_NEARER_EVERY_S = 5.0
_PAUSE_S = 0.25
_FAREWELL_S = 5.0  # for all members; one that is gone refuses the connection at once


def answer(board: Board, data: bytes, wait: bool) -> bytes:
    """The listener's side: take what a member sends, and return what it lacks.

    Where there is nothing new and `wait` allows it, the answer waits for news. UntrustedError for nonsense.
    """
    version = board.version
    heard = _absorbed(board, data)
    reply = compose(board, heard)
    if wait and not reply.files and reply.epoch == heard.epoch:
        board.wait(version, NEWS_WAIT_S)
    return speak(board, heard)


class Exchange:
    """The caller's side. Not safe to use from several threads."""

    def __init__(self, board: Board, link: Callable[[int], Link]) -> None:
        self._board = board
        self._link = link
        self._links: dict[int, Link] = {}
        self._heard: dict[int, TransferMessage] = {}
        self._over = False

    def cut(self) -> None:
        """End what goes on, from any thread; nothing can be asked after that."""
        self._over = True
        for link in list(self._links.values()):
            link.cut()

    def close(self) -> None:
        """Close the connections."""
        for link in self._links.values():
            link.close()

    def with_member(self, index: int, *, wait: bool) -> None:
        """Send a member what it lacks and take what it answers; `wait` lets it wait for news.

        Raises Unreachable where it does not answer, PeerRefused where it does not accept this node, Untrue
        where what it sends must not be taken.
        """
        link = self._links[index] = self._links.get(index) or self._link(index)
        try:
            if self._over:
                raise ConnectionError("the transfer has ended")
            data = link.exchange(speak(self._board, self._heard.get(index)), wait=wait)
            self._heard[index] = _absorbed(self._board, data)
        except UntrustedError as error:
            link.close()
            raise Untrue(
                f"a node of the transfer sends an invalid message: {error.what}", where=link.address
            ) from error
        except BaseException:
            link.close()
            raise


def _absorbed(board: Board, data: bytes) -> TransferMessage:
    with board.changed:  # it is read by the overview that is there now
        message = parse(data, board)
        absorb(board, message)
    return message


class Chain:
    """Two threads for one node: one hears news from upstream, one sends it what changed here.

    `link` makes a link to a member; `linked` is called when `upstream`, a member's index, has changed.
    """

    def __init__(
        self,
        board: Board,
        link: Callable[[int], Link],
        linked: Callable[[], object],
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._board = board
        self._link = link
        count = len(board.members)
        self._others = [(board.index - step) % count for step in range(1, count)]
        self.passed_over: dict[int, str] = {}
        """The members that are asked for nothing any more, and why."""
        self._linked = linked
        self._patience_s = patience_s
        self.upstream: int | None = None
        self._over = threading.Event()
        self.failure: Exception | None = None
        work = (self._hear, self._send) if self._others else ()
        self._workers = [(step, Exchange(board, link)) for step in work]

    def __enter__(self) -> Chain:
        for worker in self._workers:
            threading.Thread(target=self._run, args=worker, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for _step, exchange in self._workers:
            exchange.cut()
        # Not joined: one may wait a second more for news of the board, and can send them nowhere.

    @property
    def reachable(self) -> list[int]:
        """The members to ask for files, the nearest first: those before them are silent or passed over."""
        upstream = self.upstream
        farther = self._others[self._others.index(upstream) :] if upstream is not None else []
        return [index for index in farther if index not in self.passed_over]

    def pass_over(self, index: int, why: str) -> None:
        """Ask a member for nothing any more: it sends what is wrong. From any thread."""
        self.passed_over.setdefault(index, why)
        self._board.report(doubts=True)
        self._linked()

    def farewell(self) -> None:
        """Send each other member the last report of this one; a member that does not answer is left out."""
        if not self._others:
            return
        exchanges = {index: Exchange(self._board, self._link) for index in self._others}

        def send(index: int) -> None:
            with suppress(*Unreachable, PeerRefused):
                exchanges[index].with_member(index, wait=False)

        with ThreadPoolExecutor(len(exchanges), "farewell") as pool:
            wait([pool.submit(send, index) for index in exchanges], _FAREWELL_S)
            for exchange in exchanges.values():
                exchange.cut()
        for exchange in exchanges.values():
            exchange.close()

    def _run(self, work: Callable[[Exchange], None], exchange: Exchange) -> None:
        try:
            work(exchange)
        except Exception as error:  # the node's own thread raises it
            self.failure = error
        finally:
            exchange.close()

    def _hear(self, exchange: Exchange) -> None:
        silent_since: float | None = time.monotonic()
        nearer_at = 0.0
        while not self._over.is_set():
            now = time.monotonic()
            silent = now - silent_since if silent_since is not None else 0.0
            before = [index for index in self._others if index not in self.passed_over]
            if not before:
                why = "; ".join(self.passed_over.values())
                raise PeerRefused(why, hint="Check that node, then run again.")
            if self.upstream is not None and (silent > _GRACE_S or self.upstream not in before):
                self._link_to(None)
            if self.upstream is not None:
                nearer = before[: before.index(self.upstream)] if now >= nearer_at else []
                nearer_at = now + _TRY_NEARER_EVERY_S if nearer else nearer_at
            else:  # at the start the one before may be the slower to come up
                nearer = before if silent > _GRACE_S or self.passed_over else before[:1]
            if any(self._try(exchange, member, wait=False) for member in nearer) or (
                self.upstream is not None and self._try(exchange, self.upstream, wait=True)
            ):
                silent_since = None
                continue
            if silent_since is None:  # not since it answered last: an answer may take longer than the grace
                silent_since = time.monotonic()
            if silent > self._patience_s and self._board.index > 0:
                raise NotReadyError(
                    f"no other node of the transfer answers, for {silent:.0f} s",
                    hint="Check that the head is up and reachable at weights_port, then run again.",
                )
            self._over.wait(_PAUSE_S)

    def _try(self, exchange: Exchange, member: int, *, wait: bool) -> bool:
        """Exchange news with `member` and, where it answers, hear from it from now on."""
        try:
            exchange.with_member(member, wait=wait)
        except Unreachable:
            return False
        except Untrue as error:
            self.pass_over(member, f"{error.what} ({error.where})")
            return False
        except PeerRefused:
            # A stranger's service on our port is no member; the one linked to, or the head, is heard.
            if member in (self.upstream, 0):
                raise
            return False
        if member != self.upstream and not self._over.is_set():
            self._link_to(member)
        return True

    def _link_to(self, upstream: int | None) -> None:
        self.upstream = upstream
        self._linked()

    def _send(self, exchange: Exchange) -> None:
        version = -1
        while not self._over.is_set():
            version = self._board.wait(version, 1.0)
            upstream = self.upstream
            if upstream is not None:
                try:
                    exchange.with_member(upstream, wait=False)
                except (*Unreachable, PeerRefused):  # the other thread finds out what it means
                    version = -1
            self._over.wait(_PAUSE_S)
