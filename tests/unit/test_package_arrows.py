"""Packages import from those below them only; see the list in CONTRIBUTING.md."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "py" / "headfirst"
# From the top to the ground floor. Packages in one row may import from each other.
FLOORS = (
    ("cli",),
    ("deployment",),
    ("report",),
    ("render", "bundle"),
    ("plan", "smoke", "bench"),
    ("engines", "diagnose"),
    ("ownership",),
    ("cluster",),
    ("run",),
    ("supervisor",),
    ("live",),
    ("images",),
    ("weights", "model", "containers", "hardware", "lab", "demo"),
    ("peers",),
)
FLOOR = {name: number for number, row in enumerate(FLOORS) for name in row}


def imports() -> Iterator[tuple[str, str, str]]:
    """(importing package, imported package, file) of every import between our packages."""
    for file in sorted(PACKAGE.rglob("*.py")):
        relative = file.relative_to(PACKAGE)
        if len(relative.parts) < 2:
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            for name in _names(node):
                parts = name.split(".")
                if parts[0] == "headfirst" and len(parts) > 1 and parts[1] in FLOOR:
                    yield relative.parts[0], parts[1], str(relative)


def _names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        if node.module == "headfirst":
            return [f"headfirst.{alias.name}" for alias in node.names]
        return [node.module]
    return []


def test_every_package_has_a_floor() -> None:
    found = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert found == set(FLOOR)


@pytest.mark.parametrize("package", FLOOR)
def test_a_package_imports_from_its_own_floor_or_below(package: str) -> None:
    wrong = {
        f"{file} imports {imported}"
        for importing, imported, file in imports()
        if importing == package and FLOOR[imported] < FLOOR[package]
    }
    assert not wrong
