"""The load tool: jobs go in, samples come out. What it prints is data and is validated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from headfirst.common.untrusted import UntrustedError, integer
from headfirst.control.bench.load import Load
from headfirst.control.bench.process import DriverProcess, started
from headfirst.control.bench.result import Sample

DRIVER = Path(__file__).with_name("driver.py")
_SAMPLES = TypeAdapter(list[Sample])


class Job(BaseModel):
    """What is sent: `requests` is a file with one body a line, the warm-up first. Times are seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    load: Load
    requests: Path
    warmup: int
    number: int
    seconds: float | None  # no request is sent after these
    timeout: float  # of one request
    seed: int


class Tool:
    """The running load tool."""

    def __init__(self, process: DriverProcess, url: str, key: str) -> None:
        self._process = process
        self._url = url
        self._key = key

    def run(self, job: Job, folder: Path, done: Callable[[int], None]) -> list[Sample]:
        """Send the requests; `done` is called with how many have ended, warm-up included.

        `folder` is empty and takes the tool's own files. Raises HeadfirstError where the tool fails.
        """
        load: dict[str, Any] = {
            job.load.kind: int(job.load.value) if job.load.kind == "concurrency" else job.load.value
        }
        given = job.model_dump(mode="json", exclude={"load"})
        words = {"url": f"{self._url}/v1/chat/completions", "key": self._key, "folder": str(folder)}
        self._process.send({**given, **words, **load})
        while True:
            event = self._process.event()
            if "done" in event:
                done(integer(event["done"], what="the load tool's progress"))
            elif "samples" in event:
                return self._samples(event["samples"])
            else:
                raise self._process.failed(event.get("failed"))

    def _samples(self, given: Any) -> list[Sample]:
        try:
            samples = _SAMPLES.validate_python(given)
        except ValidationError as error:
            first = error.errors()[0]
            raise UntrustedError(
                f"the load tool reports an invalid request: {first['loc']}: {first['msg']}"
            ) from None
        return [
            sample
            if sample.error is None
            else sample.model_copy(update={"error": self._process.reason(sample.error)})
            for sample in samples
        ]


@contextmanager
def running(python: Path, url: str, key: str, log: Path) -> Iterator[Tool]:
    """Start the tool against the API at `url` (without /v1); it ends with the context.

    `log` takes its output.
    """
    with started(python, DRIVER, key, log) as process:
        yield Tool(process, url, key)
