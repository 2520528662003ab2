"""A Chinese page has the headings, code blocks and tables of the English one."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = """# Title

[简体中文](zh-CN/a.md)

```console
# no heading
$ deploy up
```

## Part

| a | b |
|---|---|
| 1 | 2 |
"""


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "docs_translations", ROOT / "tools" / "docs_translations.py"
    )
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_prose_may_differ(tool: ModuleType) -> None:
    assert tool.differences(PAGE, PAGE.replace("Part", "部分").replace("| 1 |", "| 一 |")) == []


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("## Part", "### Part", "headings of level"),
        ("deploy up", "deploy down", "another code block"),
        ("```console", "", "0 code blocks, not 1"),
        ("| 1 | 2 |\n", "", "2 rows of tables, not 3"),
    ],
)
def test_a_difference_is_named(tool: ModuleType, old: str, new: str, named: str) -> None:
    assert any(named in found for found in tool.differences(PAGE, PAGE.replace(old, new)))


def test_every_page_links_to_the_other_language() -> None:
    for page in (ROOT / "docs" / "zh-CN").glob("*.md"):
        assert page.read_text().splitlines()[2] == f"[English](../{page.name})"
        assert (ROOT / "docs" / page.name).read_text().splitlines()[2] == f"[简体中文](zh-CN/{page.name})"


def test_every_link_of_a_chinese_page_leads_somewhere() -> None:
    pages = [*(ROOT / "docs" / "zh-CN").glob("*.md"), ROOT / "README.zh-CN.md"]
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page}: {target}"
