"""docs/engines.md names the engines, versions and images that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from headfirst.decide import engines
from headfirst.decide.engines.sglang import support

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


@pytest.mark.parametrize("page", ["engines.md", "zh-CN/engines.md"])
def test_numbers_of_what_engines_have(page: str) -> None:
    sglang = support.table(engines.get("sglang").version)
    vllm, lmdeploy = (
        json.loads((Path(engines.__file__).parent / name / table).read_text(encoding="utf-8"))
        for name, table in (
            ("vllm", f"support-{engines.get('vllm').version}.json"),
            ("lmdeploy", f"models-{engines.get('lmdeploy').version}.json"),
        )
    )
    text = (DOCS / page).read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[2:-1]] for line in text.splitlines() if line[:1] == "|"]
    counts = [[re.findall(r"(?<![\w.])\d+(?![\w.])", cell) for cell in row] for row in rows]
    lengths = [len(lmdeploy[backend]["architectures"]) for backend in ("pytorch", "turbomind")]
    assert [
        [str(len(sglang.architectures))],
        [str(len(vllm["architectures"]))],
        [str(length) for length in lengths],
    ] in counts
    assert [[str(len(sglang.pipeline))], [], []] in counts
    assert any(
        row[:2] == [[str(len(sglang.quantizations))], [str(len(vllm["quantizations"]))]] for row in counts
    )
