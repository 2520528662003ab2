"""One run against one service: learns how long its words are, then measures load after load."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headfirst.common.errors import HeadfirstError
from headfirst.control.bench import requests
from headfirst.control.bench.load import Load, Shape
from headfirst.control.bench.requests import Scale
from headfirst.control.bench.result import Point, RequestTimes, point
from headfirst.control.evalscope.process import Evalscope
from headfirst.control.smoke.answers import FailedCase, RefusedRequest
from headfirst.control.smoke.api import Api

TIMEOUT_S = 600.0  # of one request
# With a time limit the number of requests is open: at most so many for each open one.
_REQUESTS_A_SECOND = 2
_MOST_BODIES = 2000  # distinct ones of a point; the tool begins again after the last
_SAMPLES = (64, 192)  # words of two prompts whose lengths in tokens show how long a word is
_ROUND_TRIPS = 5  # times that the round trip is measured


class LoadWatcher:
    """Follows a run; this one shows nothing."""

    def started(self, load: Load, requests: int) -> None:
        """A load begins, with so many requests (warm-up included) at most."""

    def progress(self, done: int, seconds: float) -> None:
        """So many of them have ended, `seconds` after the load began."""

    def ended(self, measured: Point) -> None:
        """Its figures."""


@dataclass(frozen=True)
class BenchSettings:
    """What is asked of the service. `dataset`: prompts in place of the shape's.

    `number` and `seconds` limit a load; without both it has as many requests as it usually needs. `warmup`,
    None: as many as run at a time.
    """

    shape: Shape
    seed: int
    mark: str
    dataset: list[dict[str, Any]] | None = None
    number: int | None = None
    seconds: float | None = None
    warmup: int | None = None


@dataclass
class BenchRun:
    """The loads of one run share no request, so that no prompt is in the engine's cache."""

    tool: Evalscope
    model: str
    settings: BenchSettings
    scale: Scale
    watcher: LoadWatcher
    _next: int = 0

    def measure(self, load: Load, halfway: Callable[[], None] | None = None) -> Point:
        """Send the requests of one load; call `halfway` after half of them. HeadfirstError: none was sent."""
        settings = self.settings
        warmup = load.usual_warmup() if settings.warmup is None else settings.warmup
        number = settings.number or _most(load, settings.seconds)
        self.watcher.started(load, warmup + number)
        begin = time.monotonic()

        def progress(done: int) -> None:
            nonlocal halfway
            self.watcher.progress(done, time.monotonic() - begin)
            if halfway and done >= (warmup + number) // 2:
                call, halfway = halfway, None
                call()

        with tempfile.TemporaryDirectory(prefix="headfirst-bench-") as scratch:
            file = Path(scratch) / "requests.jsonl"
            requests.write(self._bodies(min(warmup + number, _MOST_BODIES)), file)
            value = int(load.value) if load.kind == "concurrency" else load.value
            job = {"requests": str(file), "warmup": warmup, "number": number, "seconds": settings.seconds}
            results = self.tool.run(
                {**job, load.kind: value, "timeout": TIMEOUT_S, "seed": settings.seed}, progress
            )
            samples = [self.tool.attempt(RequestTimes, result) for result in results]
        if not samples:
            raise HeadfirstError("no request was sent within the time", hint="Give --seconds more.")
        measured = point(load, samples, warmup)
        self.watcher.ended(measured)
        return measured

    def _bodies(self, count: int) -> Iterator[dict[str, Any]]:
        indices = range(self._next, self._next + count)
        self._next = indices.stop
        settings = self.settings
        if settings.dataset is not None:
            return requests.of_dataset(
                settings.dataset, indices, model=self.model, answer=settings.shape.answer
            )
        return requests.of_shape(
            settings.shape, self.scale, indices, model=self.model, seed=settings.seed, mark=settings.mark
        )


def _most(load: Load, seconds: float | None) -> int:
    if seconds is None:
        return load.usual_requests()
    each = 1.0 if load.kind == "rate" else _REQUESTS_A_SECOND
    return max(1, math.ceil(load.value * seconds * each))


@dataclass(frozen=True)
class Calibration:
    """What a service showed before the first load.

    `context`: the longest request in tokens, None where it is not reported. `path_seconds`: the shortest
    round trip of a request that computes nothing.
    """

    scale: Scale
    context: int | None
    path_seconds: float


def examine(api: Api, mark: str) -> Calibration:
    """Ask for the context and for the lengths of two prompts. HeadfirstError where it does not answer so."""
    try:
        prompts = [f"{mark} {requests.sample(words, 'scale')}" for words in _SAMPLES]
        lengths = [api.chat(prompt, max_tokens=1).usage.prompt_tokens for prompt in prompts]
        path = min(_timed(api.models) for _ in range(_ROUND_TRIPS))
        context = next(
            (model.max_model_len for model in api.models().data if model.id == api.target.model), None
        )
    except RefusedRequest as error:
        raise HeadfirstError(f"the service refuses a request: {error.what}") from None
    except FailedCase as error:
        raise HeadfirstError(f"the service does not answer: {error.what}") from None
    per_word = (lengths[1] - lengths[0]) / (_SAMPLES[1] - _SAMPLES[0])
    if per_word <= 0:
        raise HeadfirstError(
            "the service counts no more tokens for a longer prompt, so prompts have no length"
        )
    return Calibration(Scale(per_word, lengths[0] - per_word * _SAMPLES[0]), context, path)


def _timed(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin
