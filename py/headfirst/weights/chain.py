"""Keeps a node linked to the nearest member before it that answers, and the two boards equal.

The members form a chain in their order: each fetches from the one before. Where that one is gone, its
predecessor takes its place until it is back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import httpx

from headfirst.errors import NotReadyError
from headfirst.weights.board import Board
from headfirst.weights.exchange import Caller, Refused

PATIENCE_S = 180.0
_GRACE_S = 3.0  # a process that is started anew answers within this time
_TRY_NEARER_EVERY_S = 5.0
_PROBE_LIMIT_S = 2.0
_PAUSE_S = 0.25


class Chain:
    """Two threads for one node: one hears news from upstream, one tells it what changed down here."""

    def __init__(
        self,
        board: Board,
        members: Sequence[str],
        port: int,
        token: str,
        linked: Callable[[str], object],
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._board = board
        self._above = list(reversed(members[: board.index]))  # the nearest first
        self._own, self._port, self._token = members[board.index], port, token
        self._linked = linked
        self._patience_s = patience_s
        self._upstream = ""
        self._over = threading.Event()
        self.failure: Exception | None = None
        work = (self._hear, self._tell) if self._above else ()
        self._threads = [threading.Thread(target=self._run, args=(step,), daemon=True) for step in work]

    def __enter__(self) -> Chain:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        with self._board.changed:
            self._board.changed.notify_all()
        # Not joined: an exchange may wait for news for some seconds more, and changes nothing any more.

    def _run(self, work: Callable[[Caller], None]) -> None:
        try:
            work(Caller(self._board, self._own, self._port, self._token))
        except Exception as error:  # handed on to the node's own thread, which raises it
            self.failure = error

    def _hear(self, caller: Caller) -> None:
        heard = time.monotonic()
        nearer_at = 0.0
        while not self._over.is_set():
            now = time.monotonic()
            silent = now - heard
            if self._upstream and silent > _GRACE_S:
                self._upstream = ""
            if self._upstream:
                nearer = self._above[: self._above.index(self._upstream)] if now >= nearer_at else []
                nearer_at = now + _TRY_NEARER_EVERY_S if nearer else nearer_at
            else:  # at the start the one before may be the slower to come up
                nearer = self._above if silent > _GRACE_S else self._above[:1]
            if any(self._try(caller, member, wait=False) for member in nearer) or (
                self._upstream and self._try(caller, self._upstream, wait=True)
            ):
                heard = time.monotonic()
                continue
            if silent > self._patience_s:
                raise NotReadyError(
                    f"no node before this one answers, for {silent:.0f} s: {', '.join(self._above)}",
                    hint="See that the head is up and reachable at weights_port, then run again.",
                )
            self._over.wait(_PAUSE_S)

    def _try(self, caller: Caller, member: str, *, wait: bool) -> bool:
        """Exchange with `member` and, where it answers, fetch from it from now on."""
        try:
            caller.exchange(member, wait=wait, connect_limit_s=_PROBE_LIMIT_S)
        except httpx.TransportError:
            return False
        except Refused:
            # A stranger's service on our port is no member; the one linked to has the right to be heard.
            if member == self._upstream or member == self._above[-1]:
                raise
            return False
        if member != self._upstream and not self._over.is_set():
            self._upstream = member
            self._linked(member)
        return True

    def _tell(self, caller: Caller) -> None:
        version = -1
        while not self._over.is_set():
            version = self._board.wait(version, 1.0)
            if self._upstream:
                try:
                    caller.exchange(self._upstream, wait=False)
                except (httpx.TransportError, Refused):  # the other thread finds out what it means
                    version = -1
            self._over.wait(_PAUSE_S)
