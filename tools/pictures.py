#!/usr/bin/env python3
"""Draws docs/pictures/*.yml as SVG, in English and Chinese. `--check` only compares, for CI.

A source has `size`, and lists of `areas` (a frame with a title), `boxes` and `arrows`. Places and sizes are
pixels, [x, y] and [width, height]; texts are lists of lines, in `en` and `zh`. An arrow leads from one box to
another, along the straight line between their centres. `{NAME}` in a text is the default of a setting of the
inventory.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path
from typing import Any

import generated
import yaml
from headfirst.decide.cluster.settings import ClusterSettings, ServiceSettings

DOCS = Path(__file__).resolve().parent.parent / "docs"
SOURCES = DOCS / "pictures"
TARGETS = {"en": DOCS / "pictures", "zh": DOCS / "zh-CN" / "pictures"}
_LINE = 17  # height of a line of text
_STYLE = (
    "text{font:13px system-ui,'Segoe UI','Noto Sans','Noto Sans CJK SC',sans-serif;fill:#1b1f24}"
    ".note{font-size:12px;fill:#57606a}.title{font-weight:600}"
    ".box{fill:#ddf4ff;stroke:#0969da}.area{fill:#f6f8fa;stroke:#8c959f;stroke-dasharray:5 4}"
    ".store{fill:#fff8c5;stroke:#9a6700}.arrow{stroke:#57606a;stroke-width:1.5;fill:none;marker-end:url(#head)}"
)
_HEAD = (
    '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8"'
    ' orient="auto"><path d="M0 0L8 4L0 8z" fill="#57606a"/></marker></defs>'
)


def main() -> int:
    """Write the pictures, or with --check return 1 when one is not up to date."""
    right = {
        folder / f"{source.stem}.svg": drawn(loaded(source), language)
        for source in sorted(SOURCES.glob("*.yml"))
        for language, folder in TARGETS.items()
    }
    return generated.write(right, [path for folder in TARGETS.values() for path in folder.glob("*.svg")])


def loaded(path: Path) -> dict[str, Any]:
    """A source, with the defaults of the settings that its texts name."""
    text = path.read_text("utf-8")
    for name, default in (ServiceSettings().model_dump() | ClusterSettings().model_dump()).items():
        text = text.replace(f"{{{name}}}", str(default))
    source: dict[str, Any] = yaml.safe_load(text)
    return source


def drawn(source: dict[str, Any], language: str) -> str:
    """The SVG with the texts of one language."""
    width, height = source["size"]
    title = escape(" ".join(source[language]))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
        f' height="{height}" role="img" aria-label="{title}">',
        f"<title>{title}</title>",
        f"<style>{_STYLE}</style>",
        _HEAD,
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>',
    ]
    for area in source.get("areas", ()):
        x, y = area["at"]
        parts += [_rectangle(area, "area"), _text([x + 10, y + 18], area[language], "title", "start")]
    boxes = {box["id"]: box for box in source["boxes"]}
    for box in boxes.values():
        x, y = _centre(box)
        lines = box[language]
        parts.append(_rectangle(box, box.get("kind", "box")))
        for number, line in enumerate(lines):
            place = [x, y + 4 + round((number - (len(lines) - 1) / 2) * _LINE)]
            parts.append(_text(place, [line], "title" if number == 0 else "note", "middle"))
    for arrow in source.get("arrows", ()):
        (x1, y1), (x2, y2) = _ends(boxes[arrow["from"]], boxes[arrow["to"]])
        parts.append(f'<line class="arrow" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>')
        if language in arrow:
            right, down = arrow.get("shift", [0, -6])
            place = [(x1 + x2) // 2 + right, (y1 + y2) // 2 + down]
            parts.append(_text(place, arrow[language], "note", "middle"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _rectangle(box: dict[str, Any], kind: str) -> str:
    (x, y), (width, height) = box["at"], box["size"]
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>'


def _text(place: list[int], lines: list[str], kind: str, anchor: str) -> str:
    x, y = place
    return "\n".join(
        f'<text class="{kind}" x="{x}" y="{y + number * _LINE}" text-anchor="{anchor}">{escape(line)}</text>'
        for number, line in enumerate(lines)
    )


def _centre(box: dict[str, Any]) -> tuple[int, int]:
    (x, y), (width, height) = box["at"], box["size"]
    return x + width // 2, y + height // 2


def _ends(start: dict[str, Any], end: dict[str, Any]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Where the line between the centres leaves the one box and reaches the other."""
    start_centre, end_centre = _centre(start), _centre(end)
    return _border(start, start_centre, end_centre), _border(end, end_centre, start_centre)


def _border(box: dict[str, Any], centre: tuple[int, int], towards: tuple[int, int]) -> tuple[int, int]:
    dx, dy = towards[0] - centre[0], towards[1] - centre[1]
    width, height = box["size"]
    scale = min(width / 2 / abs(dx) if dx else 9e9, height / 2 / abs(dy) if dy else 9e9)
    return round(centre[0] + dx * scale), round(centre[1] + dy * scale)


if __name__ == "__main__":
    sys.exit(main())
