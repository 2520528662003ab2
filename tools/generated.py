"""Files of the checkout that a program writes: each is written, or with --check compared."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from pathlib import Path


def write(right: Mapping[Path, str], there: Collection[Path] = ()) -> int:
    """Write the files that differ, and remove those of `there` that are no more; with --check name them, and
    return 1 where there is one."""
    stale = [path for path, text in right.items() if not path.exists() or path.read_text("utf-8") != text]
    extra = sorted({*there} - right.keys())
    if "--check" in sys.argv:
        for path in [*stale, *extra]:
            print(f"{path} is not up to date: run ./test fix", file=sys.stderr)
        return 1 if stale or extra else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(right[path], "utf-8")
    for path in extra:
        path.unlink()
    return 0
