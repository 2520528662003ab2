#!/usr/bin/env python3
"""Writes docs/reference from the code: verbs, codes, JSON, metrics, rules, roles. `--check` only compares.

The pages are in English alone: names, and the texts of the code. docs/zh-CN/reference/index.md presents them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from reference import exit_codes, failures, metrics, outputs, roles, verbs

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"
BY_HAND = {"index.md"}


def files() -> dict[str, str]:
    """Name below docs/reference → text."""
    return {
        "verbs.md": verbs.page(),
        "exit-codes.md": exit_codes.page(),
        "json.md": outputs.page(),
        "metrics.md": metrics.page(),
        "failures.md": failures.page(),
        "roles.md": roles.page(),
        **outputs.schemas(),
    }


def main() -> int:
    """Write what differs, or with --check print it and return 1."""
    right = files()
    there = {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*") if path.is_file()} - BY_HAND
    stale = [
        name
        for name, text in right.items()
        if name not in there or (FOLDER / name).read_text("utf-8") != text
    ]
    extra = sorted(there - right.keys())
    if "--check" in sys.argv:
        for name in [*stale, *extra]:
            print(f"{FOLDER / name} is not up to date: run tools/reference_docs.py", file=sys.stderr)
        return 1 if stale or extra else 0
    for name in stale:
        (FOLDER / name).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / name).write_text(right[name], "utf-8")
    for name in extra:
        (FOLDER / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
