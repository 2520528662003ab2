"""News between members: each request and its answer bring the boards of two nodes closer to being equal."""

from __future__ import annotations

from collections.abc import Callable

from headfirst.common.untrusted import UntrustedError
from headfirst.node.weights.transfer.board import Board
from headfirst.node.weights.transfer.link import Link, Untrue
from headfirst.node.weights.transfer.listener import NEWS_WAIT_S
from headfirst.node.weights.transfer.messages import Message, absorb, compose, parse, speak


def answer(board: Board, data: bytes, wait: bool) -> bytes:
    """The listener's side: take what a member sends, and return what it lacks.

    Where there is nothing new and `wait` allows it, the answer waits for news. UntrustedError for nonsense.
    """
    version = board.version
    heard = _take(board, data)
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
        self._heard: dict[int, Message] = {}
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

        Raises Unreachable where it does not answer, Refused where it does not accept this node, Untrue where
        what it sends must not be taken.
        """
        link = self._links[index] = self._links.get(index) or self._link(index)
        try:
            if self._over:
                raise ConnectionError("the transfer has ended")
            data = link.exchange(speak(self._board, self._heard.get(index)), wait=wait)
            self._heard[index] = _take(self._board, data)
        except UntrustedError as error:
            link.close()
            raise Untrue(
                f"a node of the transfer sends an invalid message: {error.what}", where=link.address
            ) from error
        except BaseException:
            link.close()
            raise


def _take(board: Board, data: bytes) -> Message:
    with board.changed:  # it is read by the overview that is there now
        message = parse(data, board)
        absorb(board, message)
    return message
