"""Texts of the program, the roles and the plugins have the language of the documentation."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from documented import ROOT
from language import of_a_mind

_SHOWN = {
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
"""Keys of YAML files whose values users read."""
_YAML = sorted(
    path
    for pattern in (
        "playbooks/*.yml",
        "roles/*/tasks/*.yml",
        "roles/*/handlers/*.yml",
        "roles/*/meta/*.yml",
        "plugins/filter/*.yml",
        "plugins/plugin_utils/failure_rules/*.yml",
        "py/headfirst/decide/engines/*/log.yml",
        "py/headfirst/decide/engines/*/presets.yml",
    )
    for path in ROOT.glob(pattern)
)
_PYTHON = sorted(path for folder in ("py/headfirst", "plugins") for path in (ROOT / folder).rglob("*.py"))
EXCEPTIONS = {
    "Tell me about ancient Rome.": "a prompt for the model",
}


def _relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _shown(value: Any, key: str = "") -> Iterator[str]:
    """The texts under the keys of _SHOWN, at any depth."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield from _shown(one, str(name))
    elif isinstance(value, list):
        for one in value:
            yield from _shown(one, key)
    elif isinstance(value, str) and key in _SHOWN:
        yield value


def _text(node: ast.AST) -> str | None:
    """A string as it is written, with {} for what an f-string fills in; None for other nodes."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or "{}" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def literals(source: str) -> Iterator[str]:
    """The texts of a Python file with a space in them: messages, help, docstrings. No comments."""
    tree = ast.parse(source)
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        text = None if id(node) in parts else _text(node)
        if text and " " in text.strip():
            yield text


@pytest.mark.parametrize("path", _YAML, ids=_relative)
def test_yaml(path: Path) -> None:
    found = [text for text in _shown(yaml.safe_load(path.read_text("utf-8"))) if of_a_mind(text)]
    assert found == []


@pytest.mark.parametrize("path", _PYTHON, ids=_relative)
def test_python(path: Path) -> None:
    found = [text for text in literals(path.read_text("utf-8")) if of_a_mind(text) and text not in EXCEPTIONS]
    assert found == []


def test_every_exception_is_used() -> None:
    there = {text for path in _PYTHON for text in literals(path.read_text("utf-8"))}
    assert EXCEPTIONS.keys() <= there


def test_literals() -> None:
    source = 'def run(x):\n    """It says so."""\n    raise Error(f"{x} wants " "more", hint="Look at {it}.")'
    assert sorted(literals(source)) == ["It says so.", "Look at {it}.", "{} wants more"]
