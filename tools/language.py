#!/usr/bin/env python3
"""Checks the terms of pages, messages, help, task names and docstrings.

Usage: python tools/language.py
Prints `FILE:LINE: WORDS (TERM)` for each wrong term, with the right one. Exit code 1 when there is one.
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
# Wrong → right. An engine is SGLang, vLLM or LMDeploy; Docker's product is called Docker Engine.
TERMS = {
    r"(?:[Dd]ocker|[Pp]odman|[Cc]ontainer)(?:'s)? engines?": "Docker Engine, container runtime",
    r"(?i:master nodes?)": "head",
    r"(?i:slaves?(?: nodes?)?)": "worker",
    r"(?i:anew)": "again",
    r"(?i:are fit)": "are suitable",
    r"(?i:blotted)": "masked",
    r"(?i:for ever)": "forever",
    r"(?i:mend(?:s|ed)?)": "repair",
    r"(?i:reckon(?:s|ed)?)": "compute",
    r"(?i:vouch\w*)": "guarantee",
}
_WRONG = re.compile("|".join(rf"(\b{pattern}\b)" for pattern in TERMS))
_CODE = re.compile(r"`[^`\n]*`")
_NOT_PROSE = re.compile(r"^```.*?^```$|`[^`\n]*`|<!--.*?-->", re.MULTILINE | re.DOTALL)
_WRITTEN = "<!-- Written by "


def wrong_terms(text: str) -> Iterator[tuple[int, str]]:
    """(line from 0, words and the right term) of each wrong term outside of code."""
    text = _CODE.sub("", text)
    right = list(TERMS.values())
    for term in _WRONG.finditer(text):
        yield text.count("\n", 0, term.start()), f"{term[0]} ({right[(term.lastindex or 1) - 1]})"


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
    problems = []
    for patterns, texts in ((PAGES, page_texts), (YAML, yaml_texts), (PYTHON, python_texts)):
        for path in sorted({path for pattern in patterns for path in ROOT.glob(pattern)}):
            if "zh-CN" in str(path):
                continue
            for start, text in texts(path.read_text("utf-8")):
                where = path.relative_to(ROOT)
                problems += [f"{where}:{start + line}: {term}" for line, term in wrong_terms(text)]
    if problems:
        print(*problems, sep="\n", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
