"""A driver that runs in evalscope's environment: jobs go in, events come out. What it prints is data."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from headfirst.common.errors import HeadfirstError
from headfirst.common.untrusted import json_document, json_object, shown

MAX_EVENT_BYTES = 256 << 20
# Others, and files in HOME such as .netrc, would send the requests elsewhere or with another key.
_KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "USER", "SSL_CERT_FILE", "SSL_CERT_DIR")
_END_S = 10.0


class DriverProcess:
    """The running driver."""

    def __init__(self, process: subprocess.Popen[str], events: IO[str], log: Path, key: str) -> None:
        self._process = process
        self._events = events
        self._log = log
        self._key = key

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def send(self, job: dict[str, Any]) -> None:
        """Give it a job. Where it has ended, its next event shows that."""
        assert self._process.stdin is not None  # noqa: S101 - a pipe
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()

    def event(self) -> dict[str, Any]:
        """The next event. HeadfirstError: it ended; UntrustedError: not a JSON object."""
        line = self._events.readline(MAX_EVENT_BYTES)
        if not line.endswith("\n"):
            raise self.failed(None)
        document = json_document(line, what="the load tool's report", limit=MAX_EVENT_BYTES)
        return json_object(document, what="the load tool's report")

    def reason(self, text: str) -> str:
        """The error's own words in one line: a traceback ends with them, an API's error has a message."""
        last = (text.strip().splitlines() or ["no answer"])[-1].replace(self._key, "•")
        with suppress(ValueError):
            document = json.loads(last)
            error = document.get("error", document) if isinstance(document, dict) else last
            last = str(error.get("message", error) if isinstance(error, dict) else error)
        return shown(last, 160)

    def failed(self, message: Any) -> HeadfirstError:
        """The error of a tool that reports `message`, or that ended without one."""
        text = str(message) if message else "it ended"
        return HeadfirstError(f"the load tool failed: {self.reason(text)}", hint=f"Its output: {self._log}")


@contextmanager
def started(python: Path, driver: Path, key: str, log: Path) -> Iterator[DriverProcess]:
    """Start a driver and wait until it is loaded; it ends with the context. `log` takes its output."""
    inside, outside = os.pipe()
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    with log.open("w") as output, tempfile.TemporaryDirectory(prefix="headfirst-bench-") as home:
        process = subprocess.Popen(
            [str(python), "-I", str(driver), str(outside)],
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
                running = DriverProcess(process, events, log, key)
                if running.event() != {"ready": True}:
                    raise running.failed(None)
                yield running
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
