"""Running another program, with its decisive last lines in the error."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from uv import find_uv_bin

from headfirst.common.errors import NotReadyError
from headfirst.control.machine.pip_settings import uv_environment

WATCH_S = 3.0
NO_INDEX = "Check with `pip download` that this machine reaches its package index, then repeat the command."


def run(
    argv: Sequence[str],
    *,
    doing: str,
    hint: str,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    stdout: Path | None = None,
    watch: Callable[[], None] = lambda: None,
) -> None:
    """Runs `argv` with the text `stdin`; its output goes to the file `stdout` if one is given.

    `watch` is called every WATCH_S seconds meanwhile.

    Raises NotReadyError where the program is missing, or with its last lines where it fails.
    """
    with (
        tempfile.TemporaryFile("w+") as input_file,
        (stdout or Path(os.devnull)).open("wb") as file,
    ):
        # A file, for communicate() with a time limit forgets the rest of a long input.
        input_file.write(stdin or "")
        input_file.seek(0)
        output = file if stdout else subprocess.PIPE
        try:
            process = subprocess.Popen(
                argv, env=env, stdin=input_file, stdout=output, stderr=subprocess.PIPE, text=True
            )
        except FileNotFoundError as error:
            what = f"{doing} needs {error.filename}, which is not installed."
            raise NotReadyError(what, hint=hint) from None
    with process:
        printed, errors = _communicate(process, watch)
    if process.returncode != 0:
        last = f"{printed or ''}{errors}".strip().splitlines()
        raise NotReadyError(f"{doing} failed:\n" + "\n".join(last[-8:]), hint=hint)


def uv(*arguments: str, doing: str, hint: str = NO_INDEX, watch: Callable[[], None] = lambda: None) -> None:
    """Run uv with this machine's settings of pip. Raises NotReadyError as `run`."""
    run([find_uv_bin(), *arguments], doing=doing, hint=hint, env=uv_environment(), watch=watch)


def _communicate(process: subprocess.Popen[str], watch: Callable[[], None]) -> tuple[str | None, str]:
    while True:
        try:
            return process.communicate(timeout=WATCH_S)
        except subprocess.TimeoutExpired:
            watch()
