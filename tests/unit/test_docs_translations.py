"""A Chinese page has the headings, code blocks and tables of the English one."""

from __future__ import annotations

import os
import re
from pathlib import Path

import docs_translations as tool
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


def test_prose_may_differ() -> None:
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
def test_a_difference_is_named(old: str, new: str, named: str) -> None:
    assert any(named in found for found in tool.differences(PAGE, PAGE.replace(old, new)))


def test_a_row_of_code_is_the_same() -> None:
    page, copy = "| `a`, `b` | text | `c` |\n", "| `a`、`b` | 文字 | `c` |\n"
    assert tool.differences(page, copy) == []
    assert len(tool.differences(page, copy.replace("`c`", "`d`"))) == 1


def test_a_change_makes_its_section_stale() -> None:
    copy = tool.listed(PAGE, PAGE.replace("Part", "部分"))
    assert tool.stale(PAGE, copy) == []
    (found,) = tool.stale(PAGE.replace("| 1 | 2 |", "| 1 | 3 |"), copy)
    assert '"Part"' in found
    (found,) = tool.stale(PAGE + "\n## More\n", copy)
    assert '"More"' in found
    (found,) = tool.stale(PAGE.partition("## Part")[0], copy)
    assert '"Part"' in found
    (found,) = tool.stale(PAGE, PAGE)
    assert "no list" in found


def test_lines_code_and_generated_tables_make_nothing_stale() -> None:
    page = PAGE + "\nA sentence of\ntwo lines.\n\n<!-- x: written by a tool -->\n\n| 1 |\n<!-- end of x -->\n"
    copy = tool.listed(page, page)
    for old, new in (("of\ntwo", "of two"), ("deploy up", "deploy down"), ("| 1 |\n<!--", "| 2 |\n<!--")):
        assert old in page
        assert tool.stale(page.replace(old, new), copy) == []


def test_translating_again_replaces_the_list() -> None:
    changed = PAGE.replace("| 1 | 2 |", "| 1 | 3 |")
    copy = tool.listed(changed, tool.listed(PAGE, PAGE))
    assert tool.stale(changed, copy) == []
    assert copy.count("<!-- translates:") == 1


def test_every_page_links_to_the_other_language() -> None:
    for page, copy in tool.pairs()[1:]:
        there, back = (os.path.relpath(*way) for way in ((copy, page.parent), (page, copy.parent)))
        assert page.read_text().splitlines()[2] == f"[简体中文]({there})"
        assert copy.read_text().splitlines()[2] == f"[English]({back})"


def test_every_link_of_a_chinese_page_leads_somewhere() -> None:
    pages = [*(ROOT / "docs" / "zh-CN").rglob("*.md"), ROOT / "README.zh-CN.md"]
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page}: {target}"
