"""Fenced blocks of the documentation, and the commands in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHELL = ("sh", "bash", "console")
_FENCE = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(?<!`)`((?:\./)?deploy [^`\n]+)`(?!`)")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*")


@dataclass(frozen=True)
class Block:
    """A fenced block; `line` is that of its text's beginning."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Everything that a person reads."""
    found = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("README*.md"), ROOT / "CONTRIBUTING.md"]
    return sorted([*found, *ROOT.glob("roles/*/README.md")])


def blocks(*languages: str) -> list[Block]:
    """The blocks of all pages but docs/zh-CN, or those of these languages."""
    found = []
    for page in pages():
        if "docs/zh-CN" in str(page):
            continue
        text = page.read_text("utf-8")
        for match in _FENCE.finditer(text):
            if not languages or match[1] in languages:
                line = text.count("\n", 0, match.start(2)) + 1
                found.append(Block(page, line, match[1], match[2]))
    return found


def section(page: Path, heading: str) -> list[Block]:
    """The blocks below a heading of the second level."""
    text = page.read_text("utf-8")
    start = text.index(f"\n## {heading}\n") + 1
    end = text.find("\n## ", start)
    first, last = (text.count("\n", 0, at if at >= 0 else len(text)) for at in (start, end))
    return [block for block in blocks() if block.page == page and first < block.line <= last]


def inline(page: Path) -> list[str]:
    """Commands of `deploy` inside the sentences and tables of a page."""
    text = _FENCE.sub("", page.read_text("utf-8"))
    return [match[1].replace("\\|", "|") for match in _INLINE.finditer(text)]


def script(block: Block) -> str:
    """What a person types: in a console, the lines behind a prompt and those that continue them."""
    if block.language != "console":
        return block.text
    typed, goes_on = [], False
    for line in block.text.splitlines():
        if goes_on or line.startswith("$ "):
            typed.append(line if goes_on else line[2:])
            goes_on = line.endswith("\\")
    return "\n".join(typed) + "\n"


def commands(text: str) -> Iterator[list[str]]:
    """The words of each simple command, without assignments before it, sudo, and what it reads and writes."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        is_file = False  # behind a redirection
        for word in [*lexer, ";"]:
            if word and set(word) <= set("<>&") and word != "&" and word != "&&":
                is_file = True
            elif word and set(word) <= set("();|&"):
                if words := _plain(words):
                    yield words
                words = []
            elif not is_file:
                words.append(word)
            else:
                is_file = False


def _plain(words: list[str]) -> list[str]:
    while words and (_ASSIGNMENT.fullmatch(words[0]) or words[0] == "sudo"):
        words = words[1:]
    return words
