"""Where Ansible's own output goes: one file a run, readable by its owner only, the last 20 kept."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import TextIO

from headfirst.control.paths import state_dir

KEEP = 20


def new_log_file(cluster: str) -> Path:
    """Path of a fresh log `<cluster>-<time>.log`; the folder exists, older logs beyond KEEP are gone."""
    folder = state_dir("logs")
    old = sorted(folder.glob("*.log"), key=lambda path: path.stat().st_mtime)
    for path in old[: max(0, len(old) - KEEP + 1)]:
        path.unlink(missing_ok=True)
    stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    return folder / f"{cluster}-{stamp}-{os.getpid()}.log"


def open_log(path: Path) -> TextIO:
    """Open `path` for appending, mode 0600, line by line, so that it can be followed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    return os.fdopen(descriptor, "a", encoding="utf-8", errors="replace", buffering=1)
