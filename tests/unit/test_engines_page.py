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
    assert versions == engine.version
    assert f"`{engine.default_image('cuda').replace(engine.version, 'VERSION')}`" in image
    assert f"`{name}`" in text


@pytest.mark.parametrize("page", ["engines.md", "zh-CN/engines.md"])
def test_numbers_of_what_engines_have(page: str) -> None:
    sglang, vllm, lmdeploy = (engines.get(name).answers.support for name in ("sglang", "vllm", "lmdeploy"))
    text = (DOCS / page).read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[2:-1]] for line in text.splitlines() if line[:1] == "|"]
    counts = [[re.findall(r"(?<![\w.])\d+(?![\w.])", cell) for cell in row] for row in rows]
    lengths = [len(each.architectures) for each in (lmdeploy.pytorch, lmdeploy.turbomind)]
    assert [
        [str(sum(map(sglang.has_class, sglang.abilities)))],
        [str(len(vllm.architectures))],
        [str(length) for length in lengths],
    ] in counts
    assert [[str(len(sglang.able("pipeline")))], [], []] in counts
    assert any(
        row[:2] == [[str(len(sglang.quantizations))], [str(len(vllm.quantizations))]] for row in counts
    )
