"""Brings files from neighbours: spans of pieces over several connections, each piece proven as it arrives."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from headfirst.node.weights.proof.hashing import PIECE, FileHash
from headfirst.node.weights.transfer.link import Gone, Link, PeerRefused, Unreachable
from headfirst.node.weights.transfer.shelf import Shelf

_SPAN = 64  # pieces that are asked for in one request
_LEAST_SPAN = 16
_PAUSE_S = 0.25
_WRONG_LIMIT = 3  # times that a piece may come wrong, or not at all
_CHECKERS = 2


@dataclass(frozen=True)
class ReceivedFile:
    """The file `name` is whole, each piece compared with its digest, and readable (not yet synced to disk).

    `senders` are the members that pieces came from.
    """

    name: str
    senders: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Failed:
    """`name` cannot go on because of `why`, until it is received again.

    `wrong`: a member sent other bytes, and is asked for nothing any more; no other one has the file yet.
    """

    name: str
    why: str
    wrong: bool = False


Event = ReceivedFile | Failed


@dataclass(eq=False)
class _File:
    """A file that is being brought. `waiting` are pieces that nobody brings yet: none while it is checked.

    `lock` is held while `descriptor` is used, so that nothing is written once the file `is_over`: its path
    may be another file's by then.
    """

    proof: FileHash
    path: Path
    waiting: set[int] = field(default_factory=set)
    wrong: dict[int, int] = field(default_factory=dict)
    senders: set[int] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)
    descriptor: int = -1
    is_over: bool = False

    def end(self) -> None:
        """Write nothing more."""
        with self.lock:
            self.is_over = True
            if self.descriptor >= 0:
                os.close(self.descriptor)
                self.descriptor = -1


@dataclass(frozen=True)
class _Span:
    """Pieces `first` up to `end` of a file, from the member `source`."""

    name: str
    file: _File
    first: int
    end: int
    source: int


class _Hopeless(Exception):
    """What came cannot be written."""


class _Wrong(Exception):
    """A neighbour sends other bytes than the file's, or has lost it, again and again."""


class _Over(Exception):
    """Nobody needs the file any more."""


class Receiver:
    """Files in the order of the calls of `receive`, each from the member that `source` names for it.

    `source` returns None while there is no member to ask. `pass_over` is called with a member that sends
    wrong bytes again and again, and why, `silent` with one that sends none for too long: another one that
    `source` names then is asked. `links` makes a link to a member for one of the connections, which are
    numbered. Safe to use from threads; it has some of its own.
    """

    def __init__(
        self,
        shelf: Shelf,
        source: Callable[[str], int | None],
        pass_over: Callable[[int, str], object],
        silent: Callable[[int], object],
        links: Callable[[int, int], Link],
        connections: int,
    ) -> None:
        self._shelf = shelf
        self._source = source
        self._pass_over = pass_over
        self._silent = silent
        self._links = links
        self._files: dict[str, _File] = {}
        self._changed = threading.Condition()
        self._active: dict[int, tuple[_Span, Link]] = {}
        self._events: list[Event] = []
        self._closed = False
        self.received = 0
        """Bytes of pieces that came, right or wrong."""
        self._checkers = ThreadPoolExecutor(_CHECKERS, "check")
        self._threads = [
            threading.Thread(target=self._work, args=(number,), name=f"receive-{number}", daemon=True)
            for number in range(connections)
        ]
        for thread in self._threads:
            thread.start()

    def receive(self, name: str, proof: FileHash, path: Path) -> None:
        """Bring `path`, of at least one byte. What is there is kept where it is right."""
        self.forget(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        file = _File(proof, path)
        self._shelf.put(name, proof, path, whole=False)
        with self._changed:
            self._files[name] = file
        self._checkers.submit(self._check, name, file)

    def forget(self, name: str) -> None:
        """Bring a file no more, and report nothing of it; what came stays."""
        with self._changed:
            file = self._files.pop(name, None)
            self._events = [event for event in self._events if event.name != name]
            for span, link in self._active.values():
                if span.name == name:
                    link.cut()
        if file:
            file.end()

    def events(self, timeout: float) -> list[Event]:
        """What happened since the last call; waits up to `timeout` seconds for the first."""
        with self._changed:
            self._changed.wait_for(lambda: self._events, timeout)
            events, self._events = self._events, []
            return events

    def reroute(self) -> None:
        """Ask the sources again: connections to members that are not the first choice any more are cut."""
        with self._changed:
            for span, link in self._active.values():
                if self._source(span.name) != span.source:
                    link.cut()
            self._changed.notify_all()

    def close(self) -> None:
        """Stop; what came is kept."""
        with self._changed:
            self._closed = True
            for _source, link in self._active.values():
                link.cut()
            self._changed.notify_all()
        for file in list(self._files.values()):
            file.end()
        self._checkers.shutdown(cancel_futures=True)
        for thread in self._threads:
            thread.join()

    def _check(self, name: str, file: _File) -> None:
        """Find the pieces that are there already."""
        try:
            missing = self._missing(name, file)
        except _Over:
            return
        except OSError as error:
            self._end(file, Failed(name, error.strerror or str(error)))
            return
        with self._changed:
            file.waiting = missing
            self._changed.notify_all()
        if not missing:
            self._end(file, ReceivedFile(name))

    def _missing(self, name: str, file: _File) -> set[int]:
        """The pieces that are not there; reads only where something was written."""
        buffer = memoryview(bytearray(PIECE))
        missing = set()
        with _used(file):
            file.descriptor = os.open(file.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            if os.fstat(file.descriptor).st_size > file.proof.size:
                os.ftruncate(file.descriptor, file.proof.size)
        for piece in range(file.proof.count):
            view = buffer[: file.proof.piece_size(piece)]
            with _used(file):
                if (
                    _is_written(file.descriptor, piece * PIECE, len(view))
                    and os.preadv(file.descriptor, [view], piece * PIECE) == len(view)
                    and file.proof.proves(piece, view)
                ):
                    self._shelf.add(name, piece)
                else:
                    missing.add(piece)
        with _used(file):
            os.ftruncate(file.descriptor, file.proof.size)
        return missing

    def _work(self, number: int) -> None:
        links: dict[int, Link] = {}
        memory = memoryview(bytearray(PIECE))
        while (span := self._next(number, links)) is not None:
            link, why, wrong = links[span.source], "", False
            try:
                self._bring(span, link, memory)
                self._unclaim(number, span)
                continue
            except _Over:
                pass
            except (*Unreachable, PeerRefused) as error:
                if isinstance(error, (TimeoutError, BlockingIOError)):  # of Python's limits, of the kernel's
                    self._silent(span.source)
                link.close()
                with self._changed:  # ask nobody for a moment
                    self._changed.wait_for(lambda: self._closed, _PAUSE_S)
            except _Wrong as error:
                why, wrong = self._without(span, str(error)), True
            except _Hopeless as error:
                why = str(error)
            except Exception as error:  # a fault of ours: it must not be waited for in vain
                why = repr(error)
            link.close()
            self._unclaim(number, span)
            if why:
                self._end(span.file, Failed(span.name, why, wrong))
        for link in links.values():
            link.close()

    def _without(self, span: _Span, why: str) -> str:
        """Ask another member for the file of `span`; returns `why` where there is none."""
        with self._changed:
            self._pass_over(span.source, why)
            if self._source(span.name) in (None, span.source):
                return why
            span.file.wrong.clear()
        return ""

    def _next(self, number: int, links: dict[int, Link]) -> _Span | None:
        """Claim the first pieces that somebody can be asked for; None when it is time to stop."""
        with self._changed:
            while not self._closed:
                for name, file in self._files.items():
                    if not file.waiting or (source := self._source(name)) is None:
                        continue
                    first = min(file.waiting)
                    # A part for each connection, where the file is large enough to be worth it.
                    size = min(_SPAN, max(_LEAST_SPAN, -(-file.proof.count // len(self._threads))))
                    limit = min((first // size + 1) * size, file.proof.count)
                    end = next((piece for piece in range(first, limit) if piece not in file.waiting), limit)
                    file.waiting -= set(range(first, end))
                    span = _Span(name, file, first, end, source)
                    if source not in links:
                        links[source] = self._links(number, source)
                    self._active[number] = span, links[source]
                    return span
                self._changed.wait(_PAUSE_S)
        return None

    def _unclaim(self, number: int, span: _Span) -> None:
        """Give back what of a span did not come."""
        with self._changed:
            del self._active[number]
            if self._files.get(span.name) is span.file:
                lacking = set(self._shelf.lacking(span.name))
                span.file.waiting |= lacking & set(range(span.first, span.end))
                self._changed.notify_all()

    def _bring(self, span: _Span, link: Link, memory: memoryview) -> None:
        file, proof, start = span.file, span.file.proof, span.first * PIECE
        try:
            body = link.request(proof.version, span.name, start, min(span.end * PIECE, proof.size))
        except Gone:
            _suspect(file, span.first, f"{link.address} has lost its copy of this file")
            raise
        for piece in range(span.first, span.end):
            view = memory[: proof.piece_size(piece)]
            body.fill(view)
            with self._changed:
                self.received += len(view)
            if not proof.proves(piece, view):
                _suspect(file, piece, f"{link.address} sends other bytes than this file's")
                raise ConnectionError(f"piece {piece} was received with errors")
            with _used(file):
                _write(file.descriptor, view, piece * PIECE)
                file.senders.add(span.source)
                lacking = self._shelf.add(span.name, piece)
            if not lacking:
                self._end(file, ReceivedFile(span.name, frozenset(file.senders)))

    def _end(self, file: _File, event: Event) -> None:
        """Report it, unless the file was forgotten, or failed before."""
        with self._changed:
            if self._files.get(event.name) is file:
                del self._files[event.name]
                self._events.append(event)
                self._changed.notify_all()
        file.end()


@contextmanager
def _used(file: _File) -> Iterator[None]:
    """Its descriptor is open within the block. Raises _Over."""
    with file.lock:
        if file.is_over:
            raise _Over
        yield


def _suspect(file: _File, piece: int, why: str) -> None:
    """Count that a piece came wrong; _Wrong where it always does."""
    file.wrong[piece] = file.wrong.get(piece, 0) + 1
    if file.wrong[piece] >= _WRONG_LIMIT:
        raise _Wrong(why)


def _write(descriptor: int, view: memoryview, offset: int) -> None:
    try:
        while view:
            written = os.pwrite(descriptor, view, offset)
            view, offset = view[written:], offset + written
    except OSError as error:
        raise _Hopeless(error.strerror or str(error)) from error


def _is_written(descriptor: int, offset: int, size: int) -> bool:
    """Whether a byte of a range was ever written; if the filesystem does not report it, whether it exists."""
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA) < offset + size
    except OSError as error:
        if error.errno == errno.ENXIO:
            return False
        raise
