"""docs/engines.md names the engines, versions and images that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from headfirst.decide import engines

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("page", ["engines.md", "zh-CN/engines.md"])
@pytest.mark.parametrize("name", engines.names())
def test_versions_and_images(page: str, name: str) -> None:
    engine = engines.get(name)
    text = (DOCS / page).read_text(encoding="utf-8")
    (row,) = re.findall(rf"^\| {engine.title} \|.*$", text, re.MULTILINE)
    _, _, versions, image, *_ = (cell.strip() for cell in row.split("|"))
    assert tuple(re.split(", |、", versions)) == engines.versions(name)
    assert f"`{engine.default_image('cuda').replace(engine.version, 'VERSION')}`" in image
    assert f"`{name}`" in text
