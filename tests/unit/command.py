"""`deploy` in this process: from its entry point to exit code, outputs and messages, and its parser alone."""

from __future__ import annotations

import io
import os
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import typer
import typer.main
from headfirst.control.cli.app import app
from headfirst.control.cli.main import main
from headfirst.decide.plan.types import Plan
from typer.testing import CliRunner

_DEPLOY: Any = typer.main.get_command(app)


class Ended(NamedTuple):
    """As subprocess.CompletedProcess."""

    returncode: int
    stdout: str
    stderr: str


def deploy(*words: str, cwd: Path | None = None, **environment: str) -> Ended:
    """Run the command with no terminal; what Python reads before it starts, such as LC_ALL, has no effect."""
    out, error = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    code = 0
    with (
        redirect_stdout(out),
        redirect_stderr(error),
        chdir(cwd or Path.cwd()),
        mock.patch.dict(os.environ, environment),
        mock.patch.object(sys, "argv", ["deploy", *words]),
        mock.patch.object(sys, "stdin", io.StringIO()),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return Ended(code, *(stream.buffer.getvalue().decode() for stream in (out, error)))  # type: ignore[attr-defined]


def succeeds(*words: object) -> str:
    """What a verb prints that ends well."""
    done = CliRunner().invoke(app, [*map(str, words)])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def plan_of(*words: object) -> Plan:
    """What `deploy plan` prints as JSON."""
    done = CliRunner().invoke(app, ["plan", *map(str, words), "--json"], env={"HF_HUB_OFFLINE": "1"})
    assert done.exit_code == 0, (done.output, done.exception)
    return Plan.model_validate_json(done.stdout)


def refused(*words: object) -> BaseException:
    """What a verb raises."""
    error = CliRunner().invoke(app, [*map(str, words)]).exception
    assert error is not None
    return error


def parsed(words: list[str], *, complete: bool = True) -> None:
    """Raises what the command line raises for these words; without `complete` arguments may be missing."""
    command = _DEPLOY
    while hasattr(command, "commands"):
        name, *words = words
        if name not in command.commands:
            raise typer.BadParameter(f"no such verb: {name}")
        command = command.commands[name]
    try:
        command.make_context(command.name, words)
    except typer.TyperException as error:
        if complete or type(error).__name__ != "MissingParameter":
            raise
