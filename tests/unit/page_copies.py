"""Backups of a folder by the program that a container of the page runs, here without the container."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ansible_collections.headfirst.serving.plugins.module_utils import page_backup, page_copy

PROGRAM = Path(page_copy.__file__).read_text()


def take(data: Path, folder: Path, reason: str = "command", program: str = PROGRAM) -> str | None:
    """`page_backup.take` with that program."""

    def copied(arguments: list[str]) -> page_backup.Pieces:
        argv = [sys.executable, "-I", "-c", program, str(data), *arguments]
        done = subprocess.run(argv, capture_output=True, check=False)
        yield done.stdout, None
        yield None, done.stderr

    return page_backup.take(folder, "page:1", reason, copied)
