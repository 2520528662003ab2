"""When a model was first published (releases.json): what makes one of its size newer than another."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import cache

from headfirst.decide.package_data import read_json

# A year and a month as publishers append them: Qwen3-30B-A3B-Instruct-2507.
_DATED = re.compile(r"-(2[3-9])(0[1-9]|1[0-2])(?=-|$)")


@cache
def _rows() -> list[tuple[str, str]]:
    rows = read_json(__package__, "releases.json")["rows"]
    return [(pattern, row["released"]) for row in rows for pattern in row["ids"]]


def find(id: str) -> str | None:
    """`2025-07`, or `2024` where the month is not known; None where nothing is known."""
    name = id.rstrip("/").rpartition("/")[2].lower()
    if dated := _DATED.search(name):
        return f"20{dated[1]}-{dated[2]}"
    return next((released for pattern, released in _rows() if fnmatchcase(name, pattern)), None)


def year(released: str | None) -> float:
    """The date in years; where nothing is known that of the oldest row, so that no age is an advantage."""
    if released is None:
        return min(year(known) for _, known in _rows())
    number, _, month = released.partition("-")
    return int(number) + (int(month) - 1) / 12 if month else float(number)
