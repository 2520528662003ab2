"""In the documentation programs print, report, read and check; they do not say, tell, know, want or look."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from documented import ROOT, pages
from language import of_a_mind

_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`|<!--.*?-->", re.MULTILINE | re.DOTALL)
BY_HAND = [
    page
    for page in pages()
    if "zh-CN" not in str(page)
    and "roles" not in page.parts
    and "<!-- Written by " not in page.read_text("utf-8")
]


@pytest.mark.parametrize("page", BY_HAND, ids=lambda page: str(page.relative_to(ROOT)))
def test_programs_have_no_mind(page: Path) -> None:
    text = _CODE.sub(lambda code: "\n" * code[0].count("\n"), page.read_text("utf-8"))
    assert of_a_mind(text) == []


def test_the_words_are_found() -> None:
    assert of_a_mind("The plan says so.")
    assert not of_a_mind("The demo stands for a model.")
