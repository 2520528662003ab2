"""Bring one file and prove it: continued, retried while that helps, refused when its bytes stay wrong."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, sleep_using_event

from headfirst.errors import NotReadyError
from headfirst.weights.files import STATE_FOLDER
from headfirst.weights.hashing import FileHash
from headfirst.weights.partial_file import PartialFile, WrongBytesError
from headfirst.weights.source import Listing, RemoteFile, Source, SourceBusyError

_TRIES = 8
_LONGEST_WAIT_S = 60
_LONGEST_ASKED_WAIT_S = 600

Result = TypeVar("Result")


def bring_file(
    source: Source,
    file: RemoteFile,
    listing: Listing,
    target: Path,
    seen: Callable[[int], object],
    stopped: Event,
) -> FileHash:
    """Make `target/file.name` what the source says it is; returns its hashes.

    `seen` is told the bytes as they come. Raises NotReadyError where they do not come, or are wrong twice;
    StoppedError when `stopped` is set.
    """
    try:
        return _pulled(source, file, listing, target, seen, stopped)
    except WrongBytesError:  # a disk's or a proxy's fault may be gone the second time
        try:
            return _pulled(source, file, listing, target, seen, stopped)
        except WrongBytesError as error:
            raise NotReadyError(
                f"{file.name} came wrong twice: {error.what}", where=error.where, hint=error.hint
            ) from error


def part_path(file: RemoteFile, listing: Listing, target: Path) -> Path:
    """Where the unfinished file lies; another version of it would lie elsewhere."""
    version = hashlib.sha256(f"{file.name} {file.sha256 or listing.pinned}".encode()).hexdigest()
    return target / STATE_FOLDER / "parts" / f"{Path(file.name).name}.{version[:16]}"


def when_it_answers(call: Callable[[], Result], stopped: Event) -> Result:
    """`call()`, tried again as long as the source asks to come back later."""
    retrying = Retrying(
        retry=retry_if_exception_type(SourceBusyError),
        wait=_wait,
        stop=lambda state: state.attempt_number >= _TRIES or not _asked_wait(state),
        sleep=sleep_using_event(stopped),
        reraise=True,
    )
    return retrying(call)


def _pulled(
    source: Source,
    file: RemoteFile,
    listing: Listing,
    target: Path,
    seen: Callable[[int], object],
    stopped: Event,
) -> FileHash:
    with PartialFile(part_path(file, listing, target), file.size, file.sha256, seen, stopped) as part:

        def pull() -> None:
            source.pull(file, listing, part)
            if not part.whole:
                raise SourceBusyError(
                    f"{file.name} ended after {part.size} of {file.size} bytes",
                    where=str(target),
                    hint="Run again: it continues.",
                )

        retrying = Retrying(
            retry=retry_if_exception_type(SourceBusyError),
            wait=_wait,
            stop=_NothingComes(part),
            sleep=sleep_using_event(stopped),
            reraise=True,
        )
        retrying(pull)
        return part.finish(target / file.name)


class _NothingComes:
    """Gives up after eight tries in a row (about three minutes) that brought no byte."""

    def __init__(self, part: PartialFile) -> None:
        self._part = part
        self._size = part.size
        self._tries = 0

    def __call__(self, state: RetryCallState) -> bool:
        self._tries = self._tries + 1 if self._part.size <= self._size else 0
        self._size = self._part.size
        asked = _asked_wait(state)
        return self._tries >= _TRIES or (asked is not None and asked > _LONGEST_ASKED_WAIT_S)


def _wait(state: RetryCallState) -> float:
    asked = _asked_wait(state)
    return asked if asked is not None else min(2.0 ** (state.attempt_number - 1), _LONGEST_WAIT_S)


def _asked_wait(state: RetryCallState) -> float | None:
    error = state.outcome.exception() if state.outcome else None
    return error.retry_after if isinstance(error, SourceBusyError) else None
