"""Processes of `headfirst-weights`, forked from one that has imported it: a start takes no 3 s of CPU.

Hub clients are not imported before the fork: they read their settings when they are imported.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import TimeoutExpired
from types import ModuleType

from headfirst.node.weights import cli

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [cli.__name__, "forked", "headfirst.node.weights.convert.fp8", "headfirst.node.weights.convert.mxfp4"]
)


def _run(arguments: Sequence[str], environment: Mapping[str, str], errors: str) -> None:
    os.environ.clear()
    os.environ.update(environment)
    for path, number in ((os.devnull, 1), (errors, 2)):
        os.dup2(os.open(path, os.O_WRONLY), number)
    sys.argv = ["headfirst-weights", *arguments]
    cli.main()


class Forked:
    """What tests use of subprocess.Popen; standard error is kept, and nobody reads standard output."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        number, name = tempfile.mkstemp(prefix="headfirst-", suffix=".errors")
        os.close(number)
        self._errors = Path(name)
        main, sys.modules["__main__"] = (
            sys.modules["__main__"],
            ModuleType("__main__"),
        )  # a child would import pytest's
        try:
            self._process = _CONTEXT.Process(
                target=_run, args=(arguments, dict(environment), name), daemon=True
            )
            self._process.start()
        finally:
            sys.modules["__main__"] = main
        assert self._process.pid
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    poll = returncode.fget

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout: float | None = None) -> int | None:
        self._process.join(timeout)
        if self.returncode is None:
            raise TimeoutExpired("headfirst-weights", timeout or 0)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        self.wait(timeout)
        return "", self._errors.read_text()

    def __del__(self) -> None:
        self._errors.unlink(missing_ok=True)
