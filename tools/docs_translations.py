#!/usr/bin/env python3
"""Compares the Chinese pages with the English ones, and finds those that are older than their English page.

Compared are headings per level, fenced code blocks, table rows, and cells of code. Each Chinese page ends
with a list of the sections that it translates, each with a hash of its English text. A section whose text has
changed since is stale: translate it again, then run this tool with the Chinese pages as arguments, which
writes the list.

Pages that a program writes have no translation.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
TRANSLATED = DOCS / "zh-CN"
READMES = (ROOT / "README.md", ROOT / "README.zh-CN.md")
_WRITTEN = re.compile(r"^<!-- Written by ", re.MULTILINE)
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^(#+) (.*)$", re.MULTILINE)
_ROW = re.compile(r"^\|.*\|$", re.MULTILINE)
_CODE_CELL = re.compile(r"\s*(?:`[^`]*`(?:[,、]\s*)?)*\s*")
_GENERATED = re.compile(r"<!-- \w+: written by .*?<!-- end of \w+ -->", re.DOTALL)
_LIST = re.compile(r"\n<!-- translates:\n(.*?)-->\n\Z", re.DOTALL)


def main() -> int:
    """Print what differs and what is stale, and return 1 when anything does; or write the lists of pages."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a page differs")
    parser.add_argument("pages", nargs="*", type=Path, help="Chinese pages that have been translated")
    arguments = parser.parse_args()
    if arguments.check == bool(arguments.pages):
        parser.error("either --check, or the Chinese pages that have been translated")
    pages = dict(pairs())
    messages = []
    for path in arguments.pages:
        page = next((page for page, copy in pages.items() if copy == path.resolve()), None)
        if page is None:
            parser.error(f"{path} translates no page")
        text = page.read_text("utf-8")
        translation = path.read_text("utf-8")
        if lines := _differences(page, text, translation):
            messages += [f"{path}: {line}" for line in lines]
        else:
            renew([(page, path)])
    if arguments.check:
        messages = problems()
    for problem in messages:
        print(problem, file=sys.stderr)
    return 1 if messages else 0


def pairs() -> list[tuple[Path, Path]]:
    """Every page that has a translation, with where that is."""
    pages = sorted(path for path in DOCS.rglob("*.md") if not path.is_relative_to(TRANSLATED))
    by_hand = [path for path in pages if not _WRITTEN.search(path.read_text("utf-8"))]
    return [READMES, *((path, TRANSLATED / path.relative_to(DOCS)) for path in by_hand)]


def fresh() -> list[tuple[Path, Path]]:
    """The pages of which no section is stale, each with its translation."""
    return [
        (page, copy)
        for page, copy in pairs()
        if copy.exists() and not stale(page.read_text("utf-8"), copy.read_text("utf-8"))
    ]


def renew(pages: Iterable[tuple[Path, Path]]) -> None:
    """Write the lists of translations that are as new as their pages."""
    for page, copy in pages:
        copy.write_text(listed(page.read_text("utf-8"), copy.read_text("utf-8")), "utf-8")


def problems() -> list[str]:
    """What is wrong with the translations of this repository, a line each."""
    pages = pairs()
    translated = {*TRANSLATED.rglob("*.md")}
    messages = [f"{copy}: missing" for _, copy in pages if not copy.exists()]
    messages += [f"{path}: has no page in docs" for path in sorted(translated - {copy for _, copy in pages})]
    for page, copy in pages:
        if copy.exists():
            text, translation = page.read_text("utf-8"), copy.read_text("utf-8")
            messages += [
                f"{copy}: {line}"
                for line in [*_differences(page, text, translation), *stale(text, translation)]
            ]
    return messages


def _differences(page: Path, text: str, translation: str) -> list[str]:
    """The READMEs have a drawing with words in it, and their tables are compared by nobody but a person."""
    return [] if page in READMES else differences(text, translation)


def differences(page: str, translation: str) -> list[str]:
    """What a translation has that its page has not, or the reverse."""
    messages = []
    blocks = [_FENCED.findall(text) for text in (page, translation)]
    if len(blocks[0]) != len(blocks[1]):
        messages.append(f"{len(blocks[1])} code blocks, not {len(blocks[0])}")
    for original, copy in zip(*blocks, strict=False):
        if original != copy:
            messages.append(f"another code block than in the page:\n{copy}")
    prose = [_FENCED.sub("", text) for text in (page, translation)]
    levels = [Counter(marks for marks, _ in _HEADING.findall(text)) for text in prose]
    for level in sorted(levels[0].keys() | levels[1].keys()):
        if levels[0][level] != levels[1][level]:
            messages.append(f"{levels[1][level]} headings of level {len(level)}, not {levels[0][level]}")
    rows = [_ROW.findall(text) for text in prose]
    if len(rows[0]) != len(rows[1]):
        return [*messages, f"{len(rows[1])} rows of tables, not {len(rows[0])}"]
    for original, copy in zip(*rows, strict=True):
        if _code_cells(original) != _code_cells(copy):
            messages.append(f"a row whose cells of code differ:\n{original}\n{copy}")
    return messages


def stale(page: str, translation: str) -> list[str]:
    """Sections of the page that have changed, come or gone since they were translated."""
    kept = _LIST.search(translation)
    if not kept:
        return ["has no list of the sections that it translates: run tools/docs_translations.py with it"]
    before = dict(line.split(" ", 1)[::-1] for line in kept[1].splitlines())
    now = sections(page)
    changed = [
        title for title in [*now, *(before.keys() - now.keys())] if now.get(title) != before.get(title)
    ]
    return [f'stale: "{title}" of the English page has changed' for title in changed]


def listed(page: str, translation: str) -> str:
    """The translation with the list of the page as it is now."""
    lines = "".join(f"{digest} {title}\n" for title, digest in sections(page).items())
    return f"{_LIST.sub('', translation).rstrip()}\n\n<!-- translates:\n{lines}-->\n"


def sections(page: str) -> dict[str, str]:
    """Title of each section → hash of its text, without what is compared otherwise: code, generated tables.

    Spaces and line breaks do not count. A title that comes twice is numbered.
    """
    text = _GENERATED.sub("", _FENCED.sub("", page))
    starts = [*_HEADING.finditer(text)]
    ends = [heading.start() for heading in starts[1:]] + [len(text)]
    hashes: dict[str, str] = {}
    for start, end in zip(starts, ends, strict=True):
        body = _ROW.sub(lambda row: _words(row[0]), text[start.start() : end])
        title, number = start[2], 2
        while title in hashes:
            title, number = f"{start[2]} ({number})", number + 1
        hashes[title] = hashlib.sha256(" ".join(body.split()).encode()).hexdigest()[:8]
    return hashes


def _code_cells(row: str) -> dict[int, list[str]]:
    """Number of a cell that has code alone → the names in it, in any order."""
    return {
        number: sorted(re.findall(r"`[^`]*`", cell))
        for number, cell in enumerate(_cells(row))
        if _CODE_CELL.fullmatch(cell)
    }


def _words(row: str) -> str:
    """A row without its cells of code."""
    return "|".join("" if _CODE_CELL.fullmatch(cell) else cell for cell in _cells(row))


def _cells(row: str) -> list[str]:
    return re.split(r"(?<!\\)\|", row)


if __name__ == "__main__":
    sys.exit(main())
