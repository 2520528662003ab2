"""Logs of the ranks, one or all, side by side: `[rank 0 node1] …`."""

from __future__ import annotations

import contextlib
import heapq
import queue
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

import docker

from headfirst.containers import names
from headfirst.errors import HeadfirstError, InputError, NotReadyError
from headfirst.live.access import HostAccess
from headfirst.live.ssh import AT_ONCE
from headfirst.live.transport import docker_over_ssh

_MAX_LINE = 1 << 16
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class LogLine(NamedTuple):
    """One line of a rank. `time` is RFC 3339 in UTC with nanoseconds, as Docker keeps it."""

    rank: int
    host: str
    time: str
    text: str


def parse_since(text: str) -> datetime:
    """`10m`, `2h`, `1d`, `30s` ago, or an ISO 8601 time (local unless it says otherwise).

    Raises InputError.
    """
    number, unit = text[:-1], text[-1:]
    if unit in _UNITS and number.isdigit():
        return datetime.now(timezone.utc) - timedelta(**{_UNITS[unit]: int(number)})
    try:
        return datetime.fromisoformat(text).astimezone(timezone.utc)
    except ValueError:
        raise InputError(
            f"{text!r} is not a time", hint="Write for example 10m, 2h, or 2026-01-31T12:00."
        ) from None


def stream_logs(
    ranks: Mapping[int, HostAccess],
    *,
    container: str = names.ENGINE,
    follow: bool = False,
    tail: int | None = None,
    since: datetime | None = None,
) -> Iterator[LogLine]:
    """Lines of these ranks: merged by time, and with `follow` those to come as they arrive.

    `tail` is the number of last lines per rank (None: all). Where a host does not answer or has no such
    container, what the others have is given first, nothing is followed, and NotReadyError is raised.
    """
    with contextlib.ExitStack() as stack:
        sources: list[_Source] = []
        errors: list[HeadfirstError] = []
        with ThreadPoolExecutor(max_workers=max(1, min(len(ranks), AT_ONCE))) as pool:
            opening = [pool.submit(_Source, rank, ranks[rank], container, stack) for rank in sorted(ranks)]
        for future in opening:
            try:
                sources.append(future.result())
            except NotReadyError as error:
                errors.append(error)
        if follow and not errors:
            yield from _as_they_come([source.lines(tail, since, follow=True) for source in sources])
        else:
            histories = [source.lines(tail, since, follow=False) for source in sources]
            yield from heapq.merge(*histories, key=lambda line: line.time)
        if errors:
            raise errors[0]


class _Source:
    """One rank's container; its connection is closed by `stack`."""

    def __init__(self, rank: int, access: HostAccess, name: str, stack: contextlib.ExitStack) -> None:
        self._rank = rank
        self._host = access.host
        client = stack.enter_context(docker_over_ssh(access))
        try:
            self._container = client.containers.get(name)
        except docker.errors.NotFound:
            raise NotReadyError(
                f"there is no container {name}", where=access.host, hint="`deploy status` shows what runs."
            ) from None

    def lines(self, tail: int | None, since: datetime | None, *, follow: bool) -> Iterator[LogLine]:
        chunks = self._container.logs(
            stream=True,
            follow=follow,
            timestamps=True,
            tail="all" if tail is None else tail,
            since=since,
        )
        for line in _split(chunks):
            time, _, text = line.partition(" ")
            # Of a progress bar that redraws itself, the last state.
            yield LogLine(self._rank, self._host, time, text.rstrip("\r").rpartition("\r")[2])


def _split(chunks: Iterable[bytes]) -> Iterator[str]:
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line[:_MAX_LINE].decode(errors="replace")
        rest = rest[:_MAX_LINE]  # of a line without end only the start is kept
    if rest:
        yield rest.decode(errors="replace")


def _as_they_come(streams: list[Iterator[LogLine]]) -> Iterator[LogLine]:
    """Lines of all streams in order of arrival; ends when all have ended (their containers stopped)."""
    arrived: queue.SimpleQueue[LogLine | Exception | None] = queue.SimpleQueue()

    def read(stream: Iterator[LogLine]) -> None:
        try:
            for line in stream:
                arrived.put(line)
            arrived.put(None)
        except Exception as error:  # handed to the reader of the queue
            arrived.put(error)

    for stream in streams:
        threading.Thread(target=read, args=(stream,), daemon=True).start()
    open_streams = len(streams)
    while open_streams:
        item = arrived.get()
        if isinstance(item, LogLine):
            yield item
            continue
        if item is not None:
            raise item
        open_streams -= 1
