"""The pictures of the documentation: the same in both languages, and no text wider than its box."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pictures
import pytest
import yaml
from documented import ROOT

SOURCES = sorted((ROOT / "docs" / "pictures").glob("*.yml"))
LANGUAGES = {"en": ROOT / "docs" / "pictures", "zh": ROOT / "docs" / "zh-CN" / "pictures"}


def width(text: str) -> float:
    """Pixels at 13 px; an East Asian character is as wide as it is high."""
    return sum(13 if unicodedata.east_asian_width(one) in "WF" else 7 for one in text)


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
@pytest.mark.parametrize("language", LANGUAGES)
def test_every_text_fits_and_is_drawn(source: Path, language: str) -> None:
    picture: dict[str, Any] = pictures.loaded(source)
    svg = ElementTree.parse(LANGUAGES[language] / f"{source.stem}.svg")
    drawn = {"".join(one.itertext()) for one in svg.iter("{http://www.w3.org/2000/svg}text")}
    for part in [*picture["boxes"], *picture.get("areas", ())]:
        for line in part[language]:
            assert line in drawn
            assert width(line) < part["size"][0], line
    for one in picture["boxes"]:
        assert len(one["en"]) == len(one["zh"])
        (x, y), (w, h) = one["at"], one["size"]
        assert x + w <= picture["size"][0]
        assert y + h <= picture["size"][1]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_no_two_boxes_overlap(source: Path) -> None:
    boxes = yaml.safe_load(source.read_text("utf-8"))["boxes"]
    for one, other in [(a, b) for a in boxes for b in boxes if a["id"] < b["id"]]:
        apart = [
            one["at"][axis] + one["size"][axis] <= other["at"][axis]
            or other["at"][axis] + other["size"][axis] <= one["at"][axis]
            for axis in (0, 1)
        ]
        assert any(apart), (one["id"], other["id"])


def test_every_picture_is_on_a_page_with_words_for_it() -> None:
    for language, folder in {"en": ROOT / "docs", "zh": ROOT / "docs/zh-CN"}.items():
        text = "".join(page.read_text("utf-8") for page in sorted(folder.glob("*.md")))
        for source in SOURCES:
            *before, _ = text.split(f"](pictures/{source.stem}.svg)")
            assert before, (language, source.stem)
            assert all(len(each.rpartition("![")[2]) > 15 for each in before), (language, source.stem)
