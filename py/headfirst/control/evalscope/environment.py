"""The Python environment of evalscope, made on first use from a lock with hashes.

Apart from ours: it is 440 MB, and only `deploy bench`, `deploy tune` and `deploy test --accuracy` need it.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from headfirst.common.state_files import exclusive
from headfirst.control.machine import commands
from headfirst.control.paths import cache_dir

LOCK = Path(__file__).with_name("packages.lock")
_MADE = "made"  # a file that is as old as the last use
_UNUSED_S = 30 * 24 * 3600


def python(report: Callable[[str], None]) -> Path:
    """The interpreter of the environment. `report` is called before work that takes a while.

    Raises NotReadyError with uv's last lines where it cannot be made.
    """
    base = cache_dir("bench")
    digest = hashlib.sha256(LOCK.read_bytes() + sys.version.encode() + sys.base_prefix.encode()).hexdigest()[
        :16
    ]
    folder = base / digest
    with exclusive(base):
        if not (folder / _MADE).is_file():
            report("Installing evalscope (once; 440 MB, usually 10–60 s) …")
            _remove_unused(base)
            _make(folder)
        (folder / _MADE).touch()
    return folder / "bin" / "python"


def _remove_unused(base: Path) -> None:
    """What an interrupted run left, and environments of other versions that were not used for long."""
    for folder in base.iterdir():
        complete_mark = folder / _MADE
        if not complete_mark.is_file() or complete_mark.stat().st_mtime < time.time() - _UNUSED_S:
            shutil.rmtree(folder)


def version() -> str:
    """The load tool and its version, as `evalscope 1.14.1`."""
    requirement = next(line for line in LOCK.read_text().splitlines() if line.startswith("evalscope=="))
    return requirement.removesuffix("\\").strip().replace("==", " ")


def _make(folder: Path) -> None:
    new = ["venv", "--quiet", "--python", sys.executable, str(folder)]
    commands.uv(*new, doing="Making the load tool's environment")
    install = ["pip", "install", "--quiet", "--no-deps", "--require-hashes", "--only-binary=:all:"]
    into = ["--python", str(folder / "bin" / "python"), "-r", str(LOCK)]
    commands.uv(*install, *into, doing="Installing the load tool")
