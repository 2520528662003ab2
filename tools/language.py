#!/usr/bin/env python3
"""Checks the words of pages, messages, help, task names and docstrings: programs print, read and check.

Usage: python tools/language.py
Prints `FILE:LINE: WORD` for each word that ascribes a mind to a program. Exit code 1 when there is one.
Code, comments, docs/zh-CN and what a program writes are not read.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "CONTRIBUTING.md", "docs/**/*.md")
YAML = (
    "playbooks/*.yml",
    "roles/*/tasks/*.yml",
    "roles/*/handlers/*.yml",
    "roles/*/meta/*.yml",
    "plugins/filter/*.yml",
    "plugins/plugin_utils/failure_rules/*.yml",
    "py/headfirst/**/engines/*/log.yml",
    "py/headfirst/**/engines/*/presets.yml",
)
PYTHON = ("py/headfirst/**/*.py", "plugins/**/*.py")
# Keys of YAML files whose values users read.
SHOWN = {
    "name",
    "msg",
    "fail_msg",
    "success_msg",
    "description",
    "short_description",
    "means",
    "fix",
    "reason",
}
EXCEPTIONS = {"Tell me about ancient Rome."}  # a prompt for the model

_WORDS = re.compile(
    r"\b(says?|said|tells?|told|knows?|wants?(?!=)|looks?|looked|lies?|stands? (?!for)|anew|mends?"
    r"|reckons?|blotted|vouch\w*|for ever|what for|are fit|their own words|its own words)\b",
    re.IGNORECASE,
)
_CODE = re.compile(r"`[^`\n]*`")
_NOT_PROSE = re.compile(r"^```.*?^```$|`[^`\n]*`|<!--.*?-->", re.MULTILINE | re.DOTALL)
_WRITTEN = "<!-- Written by "


def words(text: str) -> Iterator[tuple[int, str]]:
    """(line from 0, word) of each word outside of code that ascribes a mind to a program."""
    text = _CODE.sub("", text)
    for word in _WORDS.finditer(text):
        yield text.count("\n", 0, word.start()), word[0]


def page_texts(text: str) -> Iterator[tuple[int, str]]:
    """The prose of a page that a person writes; code and comments keep their line breaks only."""
    if _WRITTEN not in text:
        yield 1, _NOT_PROSE.sub(lambda code: "\n" * code[0].count("\n"), text)


def yaml_texts(text: str) -> Iterator[tuple[int, str]]:
    """(line from 1, value) of each text below a key of SHOWN, at any depth."""

    def shown(node: yaml.Node | None, key: str) -> Iterator[tuple[int, str]]:
        if isinstance(node, yaml.MappingNode):
            for name, value in node.value:
                yield from shown(value, name.value)
        elif isinstance(node, yaml.SequenceNode):
            for value in node.value:
                yield from shown(value, key)
        elif isinstance(node, yaml.ScalarNode) and key in SHOWN:
            # The text of a block begins on the line after its mark.
            yield node.start_mark.line + 1 + (node.style in ("|", ">")), node.value

    yield from shown(yaml.compose(text, Loader=yaml.SafeLoader), "")


def python_texts(source: str) -> Iterator[tuple[int, str]]:
    """(line from 1, text) of each literal with a space: messages, help, docstrings; {}: what is filled in."""
    tree = ast.parse(source)
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        text = None if id(node) in parts else _literal(node)
        if text and " " in text.strip():
            yield node.lineno, text  # type: ignore[attr-defined]


def _literal(node: ast.AST) -> str | None:
    if isinstance(node, ast.JoinedStr):
        return "".join(_literal(part) or "{}" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def main() -> int:
    """Print what is wrong; return the exit code."""
    problems, unused = [], set(EXCEPTIONS)
    for patterns, texts in ((PAGES, page_texts), (YAML, yaml_texts), (PYTHON, python_texts)):
        for path in sorted({path for pattern in patterns for path in ROOT.glob(pattern)}):
            if "zh-CN" in str(path):
                continue
            for start, text in texts(path.read_text("utf-8")):
                if text in EXCEPTIONS:
                    unused.discard(text)
                else:
                    where = path.relative_to(ROOT)
                    problems += [f"{where}:{start + line}: {word}" for line, word in words(text)]
    problems += [f"{__file__}: nothing has the exception {text!r}" for text in sorted(unused)]
    if problems:
        print(*problems, "A program prints, reports, reads, requires or checks.", sep="\n", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
