"""Bring one file and prove it: continued, retried while that helps, refused when its bytes stay wrong."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, sleep_using_event

from headfirst.common.errors import NotReadyError
from headfirst.node.weights.fetch.partial_file import PartialFile, WrongBytesError
from headfirst.node.weights.fetch.source import Listing, RemoteFile, Source, SourceBusyError
from headfirst.node.weights.files import STATE_FOLDER
from headfirst.node.weights.proof.hashing import FileHash

_TRIES = 8
_UNANSWERED = 3  # tries of a request that nothing answers
_LONGEST_WAIT_S = 60
_LONGEST_RETRY_AFTER_S = 600

Result = TypeVar("Result")


def bring_file(
    source: Source,
    file: RemoteFile,
    listing: Listing,
    target: Path,
    seen: Callable[[int], object],
    stopped: Event,
) -> FileHash:
    """Make `target/file.name` the file that the source lists; returns its hashes.

    `seen` is called with the bytes as they come. Raises NotReadyError where they do not come, or are wrong
    twice; StoppedError when `stopped` is set.
    """

    def bring() -> FileHash:
        with PartialFile(part_path(file, listing, target), file.size, file.sha256, seen, stopped) as part:
            _Patience(lambda: part.size, stopped).call(lambda: _pull(source, file, listing, target, part))
            return part.finish(target / file.name)

    try:
        return bring()
    except WrongBytesError:  # a disk's or a proxy's fault may be gone the second time
        try:
            return bring()
        except WrongBytesError as error:
            raise NotReadyError(
                f"{file.name} was received with errors twice: {error.what}",
                where=error.where,
                hint=error.hint,
            ) from error


def part_path(file: RemoteFile, listing: Listing, target: Path) -> Path:
    """Where the unfinished file is; another version of it has another path."""
    version = hashlib.sha256(f"{file.name} {file.sha256 or listing.pinned}".encode()).hexdigest()
    return target / STATE_FOLDER / "parts" / f"{Path(file.name).name}.{version[:16]}"


def when_it_answers(call: Callable[[], Result], stopped: Event) -> Result:
    """`call()`, tried again where the source does not answer, and as long as it asks to come back later."""
    return _Patience(lambda: 0, stopped, _UNANSWERED).call(call)


def _pull(source: Source, file: RemoteFile, listing: Listing, target: Path, part: PartialFile) -> None:
    source.pull(file, listing, part)
    if not part.whole:
        raise SourceBusyError(
            f"{file.name} ended after {part.size} of {file.size} bytes",
            where=str(target),
            hint="Run again: it continues.",
        )


class _Patience:
    """Waits longer and longer; ends after eight failures in a row (two minutes) that brought nothing.

    `unanswered`: the most of them in which the source did not ask to come back later.
    """

    def __init__(self, size: Callable[[], int], stopped: Event, unanswered: int = _TRIES) -> None:
        self._size = size
        self._stopped = stopped
        self._unanswered = unanswered
        self._most = size()
        self._failures = 0

    def call(self, call: Callable[[], Result]) -> Result:
        """`call()`, tried again while the source is busy."""
        retrying = Retrying(
            retry=retry_if_exception_type(SourceBusyError),
            after=self._count,
            wait=self._wait,
            stop=self._ends,
            sleep=sleep_using_event(self._stopped),
            reraise=True,
        )
        return retrying(call)

    def _count(self, _state: RetryCallState) -> None:
        """A try has failed. To begin again, and to come as far as before, is no progress."""
        self._failures = self._failures + 1 if self._size() <= self._most else 1
        self._most = max(self._most, self._size())

    def _wait(self, state: RetryCallState) -> float:
        """Seconds until the next try: what the source asks for, or twice as long as before."""
        retry_after = _retry_after(state)
        return min(2.0 ** (self._failures - 1), _LONGEST_WAIT_S) if retry_after is None else retry_after

    def _ends(self, state: RetryCallState) -> bool:
        """Whether there is no next try."""
        retry_after = _retry_after(state) or 0
        tries = _TRIES if retry_after else self._unanswered
        return self._failures >= tries or retry_after > _LONGEST_RETRY_AFTER_S


def _retry_after(state: RetryCallState) -> float | None:
    error = state.outcome.exception() if state.outcome else None
    return error.retry_after if isinstance(error, SourceBusyError) else None
