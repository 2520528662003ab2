"""The load tool as a process: jobs go in, samples come out. What it prints is data and is validated."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from headfirst.common.errors import HeadfirstError
from headfirst.common.untrusted import UntrustedError, integer, json_document, json_object, shown
from headfirst.control.bench.load import Load
from headfirst.control.bench.result import Sample

DRIVER = Path(__file__).with_name("driver.py")
MAX_EVENT_BYTES = 256 << 20
# Others, and files in HOME such as .netrc, would send the requests elsewhere or with another key.
_KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "USER")
_SAMPLES = TypeAdapter(list[Sample])
_END_S = 10.0


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
    """The running process."""

    def __init__(
        self, process: subprocess.Popen[str], events: IO[str], log: Path, url: str, key: str
    ) -> None:
        self._process = process
        self._events = events
        self._log = log
        self._url = url
        self._key = key

    def run(self, job: Job, folder: Path, done: Callable[[int], None]) -> list[Sample]:
        """Send the requests; `done` is called with how many have ended, warm-up included.

        `folder` is empty and takes the tool's own files. Raises HeadfirstError where the tool fails.
        """
        load = {job.load.kind: int(job.load.value) if job.load.kind == "concurrency" else job.load.value}
        given = job.model_dump(mode="json", exclude={"load"})
        words = {"url": f"{self._url}/v1/chat/completions", "key": self._key, "folder": str(folder)}
        assert self._process.stdin is not None  # noqa: S101 - a pipe
        with suppress(BrokenPipeError):  # its end shows below
            self._process.stdin.write(json.dumps({**given, **words, **load}) + "\n")
            self._process.stdin.flush()
        while True:
            event = self._next()
            if "done" in event:
                done(integer(event["done"], what="the load tool's progress"))
            elif "samples" in event:
                return self._samples(event["samples"])
            else:
                raise self._failed(event.get("failed"))

    def require_ready(self) -> None:
        """Wait until the tool is loaded."""
        if self._next() != {"ready": True}:
            raise self._failed(None)

    def _next(self) -> dict[str, Any]:
        line = self._events.readline(MAX_EVENT_BYTES)
        if not line.endswith("\n"):
            raise self._failed(None)
        document = json_document(line, what="the load tool's report", limit=MAX_EVENT_BYTES)
        return json_object(document, what="the load tool's report")

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
            else sample.model_copy(update={"error": self._reason(sample.error)})
            for sample in samples
        ]

    def _reason(self, text: str) -> str:
        """The error's own words in one line: a traceback ends with them, an API's error has a message."""
        last = (text.strip().splitlines() or ["no answer"])[-1].replace(self._key, "•")
        with suppress(ValueError):
            document = json.loads(last)
            error = document.get("error", document) if isinstance(document, dict) else last
            last = str(error.get("message", error) if isinstance(error, dict) else error)
        return shown(last, 160)

    def _failed(self, said: Any) -> HeadfirstError:
        text = str(said) if said else "it ended"
        return HeadfirstError(f"the load tool failed: {self._reason(text)}", hint=f"Its output: {self._log}")


@contextmanager
def running(python: Path, url: str, key: str, log: Path) -> Iterator[Tool]:
    """Start the tool against the API at `url` (without /v1); it ends with the context.

    `log` takes its output.
    """
    inside, outside = os.pipe()
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    with log.open("w") as output, tempfile.TemporaryDirectory(prefix="headfirst-bench-") as home:
        process = subprocess.Popen(
            [str(python), "-I", str(DRIVER), str(outside)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=output,
            pass_fds=[outside],
            env={**environment, "HOME": home, "HF_HUB_OFFLINE": "1"},
            cwd=home,
            text=True,
            start_new_session=True,  # Ctrl-C ends the run here, and the tool with it
        )
        os.close(outside)
        with os.fdopen(inside) as events:
            try:
                tool = Tool(process, events, log, url, key)
                tool.require_ready()
                yield tool
            finally:
                _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None  # noqa: S101 - a pipe
    with suppress(BrokenPipeError):
        process.stdin.close()
    process.terminate()
    try:
        process.wait(timeout=_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
