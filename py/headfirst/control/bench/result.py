"""What a run measured: a file that a later run can be compared with. Times in seconds, rates per second."""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError

from headfirst.common.errors import InputError
from headfirst.common.state_files import replace_file
from headfirst.common.untrusted import UntrustedError, json_document
from headfirst.control.bench.load import Load, Shape
from headfirst.control.evalscope.process import RequestResult
from headfirst.decide.frozen import Frozen

FILE = "result.json"
MAX_FILE_BYTES = 16 << 20

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]


class RequestTimes(RequestResult):
    """One request. `start` and `end` are on one clock, `first` is the time to the first token; tokens are
    those that the engine counts. Of a failed request there are its times, status and error only."""

    start: Seconds
    end: Seconds
    first: Seconds = 0.0
    prompt: Count = 0
    answer: Count = 0
    status: int | None = None

    @property
    def per_token(self) -> float | None:
        """Time for each token after the first; None where there is no second one."""
        return (self.end - self.start - self.first) / (self.answer - 1) if self.answer > 1 else None


class Percentiles(Frozen):
    """Percentiles by nearest rank."""

    mean: Seconds
    p50: Seconds
    p95: Seconds
    p99: Seconds


class Point(Frozen):
    """One load. Rates and tokens are those of the answered requests; `errors` counts failed ones by reason.

    `ttft`: time to first token; `tpot`: time per output token after it; `e2e`: to the end of the answer.
    None where no request has such a time.
    """

    load: Load
    requests: Count
    warmup: Count
    errors: dict[str, int]
    seconds: Seconds
    request_rate: Seconds
    output_rate: Seconds
    total_rate: Seconds
    prompt_tokens: Seconds
    answer_tokens: Seconds
    ttft: Percentiles | None
    tpot: Percentiles | None
    e2e: Percentiles | None

    @property
    def failed(self) -> int:
        """Requests without a whole answer."""
        return sum(self.errors.values())


class PrefillSide(Frozen):
    """The prefill replicas of a service that divides prefill and decode.

    `arguments` are those of rank 0 of the first one.
    """

    replicas: list[int]
    hosts: list[str]
    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int
    arguments: list[str]


class BenchSubject(Frozen):
    """What was measured: a replica, or with `is_routed` all of them through their router.

    `image` and `arguments` are those of rank 0 of the first one. Where prefill and decode are divided, they
    and the sizes are those of the decode replicas, and `prefill` has those of the others.
    """

    cluster: str
    service: str
    replicas: list[int]
    is_routed: bool
    model: str
    engine: str
    engine_version: str
    image: str
    device: str
    hosts: list[str]
    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int
    arguments: list[str]
    # Left out of JSON where each replica computes prompts and answers.
    prefill: PrefillSide | None = Field(default=None, exclude_if=operator.not_)

    @property
    def names(self) -> tuple[str, str]:
        """Of the folder of its runs, and of a run in it."""
        return self.cluster, f"{self.service}-{self.engine}"


class BenchResult(Frozen):
    """A whole run. `path_seconds`: the round trip from the load tool to the head, part of every TTFT."""

    version: Literal[1] = 1
    headfirst: str
    tool: str
    date: str  # ISO 8601, UTC
    subject: BenchSubject
    shape: Shape
    dataset: str | None  # file name and sha256
    seed: int
    mark: str  # at the beginning of every prompt of a shape
    path_seconds: Seconds
    points: list[Point]

    def write(self, folder: Path) -> Path:
        """Write FILE into `folder`, mode 0600."""
        path = folder / FILE
        replace_file(path, self.model_dump_json(indent=2) + "\n")
        return path


def read(path: Path) -> BenchResult:
    """The result of an earlier run: its folder, or its file."""
    file = path / FILE if path.is_dir() else path
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            raise InputError(f"{file} is too large for a result", where=str(path))
        content = file.read_bytes()
    except OSError as error:
        raise InputError(f"no result there: {error.strerror}", where=str(file)) from None
    what = ("the result", "not a result of `deploy bench`")
    return parsed(BenchResult, content, *what, where=str(file), limit=MAX_FILE_BYTES)


_Model = TypeVar("_Model", bound=BaseModel)


def parsed(kind: type[_Model], content: bytes, what: str, refusal: str, *, where: str, limit: int) -> _Model:
    """The JSON of a file that an earlier run wrote. InputError, with `refusal` for JSON of another form."""
    try:
        return kind.model_validate(json_document(content, what=what, where=where, limit=limit))
    except UntrustedError as error:
        raise InputError(error.what, where=where) from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError(f"{refusal}: {place}: {first['msg']}", where=where) from None


def point(load: Load, samples: Sequence[RequestTimes], warmup: int) -> Point:
    """The figures of one load."""
    good = [sample for sample in samples if sample.error is None]
    seconds = (
        max(sample.end for sample in samples) - min(sample.start for sample in samples) if samples else 0.0
    )
    prompts, answers = sum(sample.prompt for sample in good), sum(sample.answer for sample in good)

    def rate(amount: float) -> float:
        return amount / seconds if seconds else 0.0

    steps = [sample.per_token for sample in good if sample.per_token is not None]
    return Point(
        load=load,
        requests=len(samples),
        warmup=warmup,
        errors=dict(Counter(_reason(sample) for sample in samples if sample.error is not None).most_common()),
        seconds=seconds,
        request_rate=rate(len(good)),
        output_rate=rate(answers),
        total_rate=rate(prompts + answers),
        prompt_tokens=prompts / len(good) if good else 0.0,
        answer_tokens=answers / len(good) if good else 0.0,
        ttft=_spread([sample.first for sample in good]),
        tpot=_spread([max(0.0, step) for step in steps]),
        e2e=_spread([sample.end - sample.start for sample in good]),
    )


def _reason(sample: RequestTimes) -> str:
    return f"HTTP {sample.status}: {sample.error}" if sample.status else f"{sample.error}"


def _spread(values: Sequence[float]) -> Percentiles | None:
    if not values:
        return None
    ordered = sorted(values)

    def rank(share: float) -> float:
        return ordered[max(0, math.ceil(len(ordered) * share) - 1)]

    return Percentiles(mean=sum(ordered) / len(ordered), p50=rank(0.5), p95=rank(0.95), p99=rank(0.99))


def differences(old: BenchResult, new: BenchResult) -> dict[str, tuple[Any, Any]]:
    """What besides the service was not equal in two runs, and so may explain their figures."""
    names = ("shape", "dataset", "seed", "tool")
    pairs = {name: (getattr(old, name), getattr(new, name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
