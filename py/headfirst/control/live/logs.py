"""Logs of containers, one or several, side by side: `[rank 0 node1] …`."""

from __future__ import annotations

import contextlib
import heapq
import queue
import re
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, NamedTuple

import docker
from rich.console import Console
from rich.text import Text

from headfirst.common import container_names as names
from headfirst.common.errors import HeadfirstError, InputError, NotReadyError
from headfirst.common.untrusted import for_terminal
from headfirst.control.live.ssh_access.ssh import AT_ONCE
from headfirst.control.live.ssh_access.transport import docker_over_ssh
from headfirst.decide.cluster.login import HostAccess

if TYPE_CHECKING:
    from docker.models.containers import Container

_MAX_LINE = 1 << 16
# Docker keeps a long line in parts of this size, and writes a time before each of them.
_PART = 1 << 14
_STAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z ")
_SHOWN_CHARS = 2000
# Python's warnings while it imports: the first line, and the source line below it.
_WARNING = re.compile(r"(?:/|<frozen )\S.*:\d+: \w*Warning: ")
_START_POLL_S = 1.0
# A change renames containers: for a moment none has the name.
_RENAMED_S = 10.0
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class Logged(NamedTuple):
    """A container whose log is read. `title` is what it is: `rank 0`, `chat/1 rank 0`, `page`."""

    title: str
    access: HostAccess
    container: str = names.ENGINE


class ContainerLogLine(NamedTuple):
    """One line of a container. `time` is RFC 3339 in UTC with nanoseconds, as Docker keeps it."""

    title: str
    host: str
    time: str
    text: str


def parse_since(text: str) -> datetime:
    """`10m`, `2h`, `1d`, `30s` ago, or an ISO 8601 time (local unless it has a zone).

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
    containers: Sequence[Logged],
    *,
    follow: bool = False,
    tail: int | None = None,
    since: datetime | None = None,
) -> Generator[ContainerLogLine, None, None]:
    """Lines of these containers, merged by time; `follow`: also those to come, as they arrive, over restarts.

    `tail` is the number of last lines of each (None: all). Where a host does not answer or has no such
    container, what the others have is given first, nothing is followed, and NotReadyError is raised.
    """
    with contextlib.ExitStack() as stack:
        sources: list[_Source] = []
        errors: list[HeadfirstError] = []
        with ThreadPoolExecutor(max_workers=max(1, min(len(containers), AT_ONCE))) as pool:
            opening = [pool.submit(_Source, logged, stack) for logged in containers]
        for future in opening:
            try:
                sources.append(future.result())
            except NotReadyError as error:
                errors.append(error)
        if follow and not errors:
            yield from _as_they_come([source.followed(tail, since) for source in sources])
        else:
            histories = [source.lines(tail, since, follow=False) for source in sources]
            yield from heapq.merge(*histories, key=lambda line: line.time)
        if errors:
            raise errors[0]


class _Source:
    """One container; its connection is closed by `stack`."""

    def __init__(self, logged: Logged, stack: contextlib.ExitStack) -> None:
        self._logged = logged
        self._client = stack.enter_context(docker_over_ssh(logged.access))
        try:
            self._container = self._client.containers.get(logged.container)
        except docker.errors.NotFound:
            raise NotReadyError(
                f"there is no container {logged.container}",
                where=logged.access.host,
                hint="`deploy status` shows what runs.",
            ) from None

    def lines(self, tail: int | None, since: datetime | None, *, follow: bool) -> Iterator[ContainerLogLine]:
        chunks = self._container.logs(
            stream=True,
            follow=follow,
            timestamps=True,
            tail="all" if tail is None else tail,
            since=since,
        )
        title, access, _ = self._logged
        for line in _split(chunks):
            at, _, text = line.partition(" ")
            # Of a progress bar that redraws itself, the last state.
            yield ContainerLogLine(title, access.host, at, text.rstrip("\r").rpartition("\r")[2])

    def followed(self, tail: int | None, since: datetime | None) -> Iterator[ContainerLogLine]:
        """Lines as they come, of each start of the container, until it is removed."""
        last = ""
        while True:
            for line in self.lines(tail, since, follow=True):
                if line.time > last:
                    last = line.time
                    yield line
            if not self._starts_again():
                return
            # Docker's `since` has seconds; what was given before is left out above.
            tail, since = None, datetime.fromisoformat(last) if last else since

    def _starts_again(self) -> bool:
        """Wait for the next start. False where the container was removed."""
        followed, missing_since = _start(self._container), None
        while missing_since is None or time.monotonic() - missing_since < _RENAMED_S:
            try:
                self._container = self._client.containers.get(self._logged.container)
            except docker.errors.NotFound:
                missing_since = missing_since or time.monotonic()
            else:
                missing_since = None
                # It may have ended again meanwhile.
                if _start(self._container) != followed:
                    return True
            time.sleep(_START_POLL_S)
        return False


def _start(container: Container) -> tuple[str, str]:
    """Which start of which container this is."""
    return str(container.id), str(container.attrs["State"]["StartedAt"])


def _split(chunks: Iterable[bytes]) -> Iterator[str]:
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield _joined(line[:_MAX_LINE]).decode(errors="replace")
        rest = rest[:_MAX_LINE]  # of a line without end only the start is kept
    if rest:
        yield _joined(rest).decode(errors="replace")


def _joined(line: bytes) -> bytes:
    """The line without the times that Docker writes before its second part and those after it."""
    stamp = _STAMP.match(line)
    at = stamp.end() + _PART if stamp else len(line)
    while part := _STAMP.match(line, at):
        line = line[:at] + line[part.end() :]
        at += _PART
    return line


def _as_they_come(streams: list[Iterator[ContainerLogLine]]) -> Iterator[ContainerLogLine]:
    """Lines of all streams in order of arrival; ends when all have ended."""
    arrived: queue.SimpleQueue[ContainerLogLine | Exception | None] = queue.SimpleQueue()

    def read(stream: Iterator[ContainerLogLine]) -> None:
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
        if isinstance(item, ContainerLogLine):
            yield item
            continue
        if item is not None:
            raise item
        open_streams -= 1


def shortened(lines: Iterable[ContainerLogLine]) -> Iterator[ContainerLogLine]:
    """The lines without Python's warnings; of a long one the start, and how much is left out."""
    sources = set()  # of warnings whose source line is next
    for line in lines:
        container = (line.title, line.host)
        if _WARNING.match(line.text):
            sources.add(container)
            continue
        follows, more = container in sources, len(line.text) - _SHOWN_CHARS
        sources.discard(container)
        if follows and line.text.startswith("  "):
            continue
        cut = f"{line.text[:_SHOWN_CHARS]} … {more:,} more characters: --full"
        yield line._replace(text=cut) if more > 0 else line


_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "bright_red", "bright_cyan", "bright_magenta")


def print_logs(lines: Iterable[ContainerLogLine], console: Console, *, timestamps: bool = False) -> None:
    """Print `[rank 0 node1] text`, with the service where there are several; `timestamps` are UTC."""
    colours: dict[tuple[str, str], str] = {}
    for line in lines:
        colour = colours.setdefault((line.title, line.host), _COLOURS[len(colours) % len(_COLOURS)])
        shown = Text(f"[{line.title} {line.host}] ", style=colour)
        if timestamps:
            shown.append(f"{for_terminal(line.time)} ", style="dim")
        # The engine may colour its lines itself.
        shown.append_text(Text.from_ansi(for_terminal(line.text, colours=True)))
        console.print(shown, soft_wrap=True, highlight=False)
