"""DOCUMENTATION of each module is what ansible-doc reads; `./test long` has all of ansible-test sanity."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

MODULES = Path(__file__).resolve().parents[2] / "plugins" / "modules"
KEYS = {"aliases", "choices", "default", "description", "elements"}
KEYS |= {"options", "required", "suboptions", "type"}


def documented(path: Path) -> dict[str, Any]:
    """The value of DOCUMENTATION, or of RETURN, by name."""
    tree = ast.parse(path.read_text())
    return {
        node.targets[0].id: yaml.safe_load(ast.literal_eval(node.value))
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id in ("DOCUMENTATION", "RETURN")
    }


def unknown(options: dict[str, dict[str, Any]], known: set[str]) -> Iterator[str]:
    """Keys that no option has: such as the part of a sentence after a comma."""
    for name, option in options.items():
        yield from (f"{name}: {key}" for key in option if key not in known)
        for part in ("options", "suboptions", "contains"):
            yield from unknown(option.get(part, {}), known)


@pytest.mark.parametrize("path", sorted(MODULES.glob("[a-z]*.py")), ids=lambda path: path.stem)
def test_an_option_has_only_keys_that_ansible_has(path: Path) -> None:
    parts = documented(path)
    assert list(unknown(parts["DOCUMENTATION"].get("options", {}), KEYS)) == []
    assert list(unknown(parts.get("RETURN") or {}, KEYS | {"contains", "returned", "sample"})) == []
