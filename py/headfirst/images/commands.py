"""Running another program, with its decisive last lines in the error."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from headfirst.errors import NotReadyError


def run(
    argv: Sequence[str],
    *,
    doing: str,
    hint: str,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    stdout: Path | None = None,
) -> None:
    """Runs `argv` with the text `stdin`; its output goes to the file `stdout` if one is given.

    Raises NotReadyError where the program is missing, or with its last lines where it fails.
    """
    try:
        done = subprocess.run(
            argv,
            env=env,
            input=stdin,
            stdout=stdout.open("wb") if stdout else subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise NotReadyError(f"{doing} needs {error.filename}, which is not here.", hint=hint) from None
    if done.returncode != 0:
        said = f"{done.stdout or ''}{done.stderr}".strip().splitlines()
        raise NotReadyError(f"{doing} failed:\n" + "\n".join(said[-8:]), hint=hint)
