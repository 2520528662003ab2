"""Keeps a replica in the lists of its routers while it serves, and out of them while it does not.

Each turn reads the lists again, so a router that was started again, or whose list somebody has changed, has
the replica after a moment.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

from headfirst.common.errors import NotReadyError
from headfirst.common.untrusted import UntrustedError
from headfirst.node.supervisor.records import Record
from headfirst.node.supervisor.routers import Router

TURN_S = 2.0
_Failed = (NotReadyError, UntrustedError)


class Registration:
    """One replica at its routers. While `serves` is None, somebody changes the replica: nothing is done."""

    def __init__(self, record: Record, serves: Callable[[], bool | None]) -> None:
        self._record, self._serves = record, serves
        self._routers = routers_of(record)
        self.problems: dict[str, str] = {}  # by the address of the router

    def turn(self) -> None:
        """Bring every router's list up to date; one that does not answer is asked again the next time."""
        serves = self._serves()
        if serves is None:
            return
        for router in self._routers:
            try:
                if serves:
                    router.register(self._record.url, self._record.api_key)
                else:
                    router.remove(self._record.url)
                self.problems.pop(router.url, None)
            except _Failed as error:
                self.problems[router.url] = error.what

    def leave(self) -> None:
        """Take the replica out of every list, once."""
        for router in self._routers:
            with contextlib.suppress(*_Failed):  # it finds by itself that nothing answers there
                router.remove(self._record.url)


def routers_of(record: Record) -> list[Router]:
    """The routers of a replica."""
    return [Router(one.url, one.key) for one in record.routers]


def drain(url: str, routers: Sequence[Router], seconds: float) -> int:
    """Let routers send no new requests to the replica; wait until none runs. The number that still runs.

    A router that does not answer sends nothing either.
    """
    ends = time.monotonic() + seconds
    while True:
        left = 0
        for router in routers:
            try:
                left += router.drain(url)
            except _Failed:
                continue
        if not left or time.monotonic() > ends:
            return left
        time.sleep(0.5)


def without(url: str, routers: Sequence[Router], seconds: float) -> list[str]:
    """The routers that send the replica no requests after so many seconds; [] as soon as all do."""
    ends = time.monotonic() + seconds
    while True:
        missing = [router.url for router in routers if not _has(router, url)]
        if not missing or time.monotonic() > ends:
            return missing
        time.sleep(0.5)


def _has(router: Router, url: str) -> bool:
    try:
        found = router.worker(url)
    except _Failed:
        return False
    return found is not None and found.status == "ready"
