#!/usr/bin/env python3
"""Compares docs/zh-CN with docs: headings per level, fenced code blocks, table rows. It has `--check` only.

docs/inventory.md is generated from the code and has no translation.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
TRANSLATED = DOCS / "zh-CN"
GENERATED = {"inventory.md"}
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(#+) ", re.MULTILINE)
_ROW = re.compile(r"^\|", re.MULTILINE)


def main() -> int:
    """Print what differs, and return 1 when anything does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", required=True)
    parser.parse_args()
    names = {path.name for path in DOCS.glob("*.md")} - GENERATED
    translated = {path.name for path in TRANSLATED.glob("*.md")}
    found = [f"{TRANSLATED / name}: missing" for name in sorted(names - translated)]
    found += [f"{TRANSLATED / name}: has no page in docs" for name in sorted(translated - names)]
    for name in sorted(names & translated):
        pages = ((folder / name).read_text(encoding="utf-8") for folder in (DOCS, TRANSLATED))
        found += [f"{TRANSLATED / name}: {difference}" for difference in differences(*pages)]
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


def differences(page: str, translation: str) -> list[str]:
    """What a translation has that its page has not, or the reverse."""
    found = []
    blocks = [_FENCED.findall(text) for text in (page, translation)]
    if len(blocks[0]) != len(blocks[1]):
        found.append(f"{len(blocks[1])} code blocks, not {len(blocks[0])}")
    for original, copy in zip(*blocks, strict=False):
        if original != copy:
            found.append(f"another code block than in the page:\n{copy}")
    prose = [_FENCED.sub("", text) for text in (page, translation)]
    levels = [Counter(_HEADING.findall(text)) for text in prose]
    for level in sorted(levels[0].keys() | levels[1].keys()):
        if levels[0][level] != levels[1][level]:
            found.append(f"{levels[1][level]} headings of level {len(level)}, not {levels[0][level]}")
    rows = [len(_ROW.findall(text)) for text in prose]
    if rows[0] != rows[1]:
        found.append(f"{rows[1]} rows of tables, not {rows[0]}")
    return found


if __name__ == "__main__":
    sys.exit(main())
