"""evalscope as a process: jobs go in, results come out. What it prints is data and is validated."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Literal, TypeVar

from pydantic import ValidationError

from headfirst.common.errors import HeadfirstError
from headfirst.common.untrusted import UntrustedError, integer, json_document, json_object, shown
from headfirst.decide.frozen import Frozen

DRIVER = Path(__file__).with_name("driver.py")
MAX_EVENT_BYTES = 4 << 20
# Others, and files in HOME such as .netrc, would send the requests elsewhere or with another key.
_KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "USER", "SSL_CERT_FILE", "SSL_CERT_DIR")
_END_S = 10.0


class RequestResult(Frozen):
    """What became of one request; with `error` there was no whole answer."""

    error: str | None = None


A = TypeVar("A", bound=RequestResult)


class Evalscope:
    """The running driver, for one API."""

    def __init__(
        self, process: subprocess.Popen[str], events: IO[str], log: Path, url: str, key: str
    ) -> None:
        self._process = process
        self._events = events
        self._log = log
        self._target = {"url": f"{url}/v1", "key": key}

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def run(
        self, job: Mapping[str, Any], done: Callable[[int], None] = lambda done: None
    ) -> Iterator[dict[str, Any]]:
        """The results of a job as they come; `done` is called with how many requests have ended.

        Raises HeadfirstError where the tool fails.
        """
        with tempfile.TemporaryDirectory(prefix="headfirst-evalscope-") as folder:
            assert self._process.stdin is not None  # noqa: S101 - a pipe
            with suppress(BrokenPipeError):  # it has ended: the next event shows that
                self._process.stdin.write(json.dumps({**job, **self._target, "folder": folder}) + "\n")
                self._process.stdin.flush()
            while (event := self.event()) != {"ended": True}:
                if "done" in event:
                    done(integer(event["done"], what="the load tool's progress"))
                elif "result" in event:
                    yield json_object(event["result"], what="the load tool's result")
                else:
                    raise self.failed(event.get("failed"))

    def event(self) -> dict[str, Any]:
        """The next event. HeadfirstError: it ended; UntrustedError: not a JSON object."""
        line = self._events.readline(MAX_EVENT_BYTES)
        if not line.endswith("\n"):
            raise self.failed(None)
        document = json_document(line, what="the load tool's report", limit=MAX_EVENT_BYTES)
        return json_object(document, what="the load tool's report")

    def attempt(self, kind: type[A], result: Mapping[str, Any]) -> A:
        """A result, validated, with the decisive words of its error."""
        try:
            attempt = kind.model_validate(result)
        except ValidationError as error:
            first = error.errors()[0]
            raise UntrustedError(
                f"the load tool reports an invalid result: {first['loc']}: {shown(first['msg'])}"
            ) from None
        reason = attempt.error and self._reason(attempt.error)
        return attempt.model_copy(update={"error": reason}) if reason else attempt

    def failed(self, message: Any) -> HeadfirstError:
        """The error of a tool that reports `message`, or that ended without one."""
        text = str(message) if message else "it ended"
        return HeadfirstError(f"the load tool failed: {self._reason(text)}", hint=f"Its output: {self._log}")

    def _reason(self, text: str) -> str:
        """The error's own words in one line: a traceback ends with them, an API's error has a message."""
        last = (text.strip().splitlines() or ["no answer"])[-1].replace(self._target["key"], "•")
        with suppress(ValueError):
            document = json.loads(last)
            error = document.get("error", document) if isinstance(document, dict) else last
            last = str(error.get("message", error) if isinstance(error, dict) else error)
        return shown(last, 160)


@contextmanager
def running(
    python: Path, kind: Literal["load", "questions"], url: str, key: str, log: Path
) -> Iterator[Evalscope]:
    """Start the driver for jobs of this kind against the API at `url` (without /v1), and wait until it is
    loaded; it ends with the context. `log` takes its output."""
    inside, outside = os.pipe()
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    with log.open("w") as output, tempfile.TemporaryDirectory(prefix="headfirst-evalscope-") as home:
        process = subprocess.Popen(
            [str(python), "-I", str(DRIVER), str(outside), kind],
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
                started = Evalscope(process, events, log, url, key)
                if started.event() != {"ready": True}:
                    raise started.failed(None)
                yield started
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
