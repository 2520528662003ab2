#!/usr/bin/env python3
"""Writes docs/reference from the code: verbs, codes, JSON, metrics, rules, roles. `--check` only compares.

The pages are in English alone: names, and the texts of the code. docs/zh-CN/reference/index.md presents them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import generated
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
    }


def main() -> int:
    """Write what differs, or with --check print it and return 1."""
    there = [path for path in FOLDER.rglob("*") if path.is_file() and path.name not in BY_HAND]
    return generated.write({FOLDER / name: text for name, text in files().items()}, there)


if __name__ == "__main__":
    sys.exit(main())
