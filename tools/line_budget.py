#!/usr/bin/env python3
"""Compares how many lines each package has with its number in `tool.headfirst.lines` of pyproject.toml.

Usage: python tools/line_budget.py
A file counts for the longest folder of the table that it is in. Prints the totals, and each folder that
exceeds its number.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import tomllib

TABLE = "pyproject.toml"
PRODUCT = ("py/*.py", "plugins/*.py", "roles/*.yml", "playbooks/*.yml", "tools/*.py")
TESTS = ("tests/*.py",)


def lines_of(root: Path, folders: Mapping[str, int], patterns: tuple[str, ...]) -> Counter[str]:
    """Folder → lines of the files in it that git has or would add; "" for files in no folder of the table."""
    argv = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", *patterns]
    names = subprocess.run(argv, cwd=root, capture_output=True, text=True, check=True).stdout.split("\0")
    lines: Counter[str] = Counter()
    for name in filter(None, names):
        folder = max((folder for folder in folders if name.startswith(f"{folder}/")), key=len, default="")
        if (root / name).is_file():
            lines[folder] += (root / name).read_bytes().count(b"\n")
    return lines


def wrong(lines: Mapping[str, int], folders: Mapping[str, int]) -> list[str]:
    """What exceeds its number or has none, each with the next step."""
    step = f"delete lines, or raise the number in {TABLE} in a commit that says why"
    over = [
        f"{folder} has {lines[folder]:,} lines, more than {most:,}: {step}"
        for folder, most in folders.items()
        if lines.get(folder, 0) > most
    ]
    return over + [f"{lines['']:,} lines are in no folder of the table: add one in {TABLE}"] * ("" in lines)


def main(root: Path = Path(__file__).parents[1]) -> int:
    """Print the totals, and what is wrong; return the exit code."""
    folders = tomllib.loads((root / TABLE).read_text("utf-8"))["tool"]["headfirst"]["lines"]
    product, tests = (lines_of(root, folders, patterns) for patterns in (PRODUCT, TESTS))
    print(f"{product.total():,} lines of the product, {tests.total():,} of tests")
    problems = wrong(product + tests, folders)
    print(*problems, sep="\n", end="\n" * bool(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
