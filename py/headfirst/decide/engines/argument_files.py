"""An engine's specification as files: arguments-VERSION.json and removed.json in the engine's package.

A tool writes arguments-VERSION.json from the engine's own parser. removed.json maps a flag of older versions
to `between`, the two versions between which it went, and `instead`: its successor (flag, with its value where
that is fixed), or null. `why` replaces the sentence where a successor alone would mislead.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from headfirst.decide.engines.argument_check import Specification, specification


def load(package: str, title: str, version: str, owned: Mapping[str, str]) -> Specification:
    """The specification of `version` of the engine in `package`; `title` is its name in messages."""
    options = read(package, f"arguments-{version}.json")["options"]
    removed = read(package, "removed.json")["flags"]
    return specification(
        f"{title} {version}", options, {flag: _advice(entry) for flag, entry in removed.items()}, owned
    )


@cache
def read(package: str, name: str) -> dict[str, Any]:
    """The JSON object in file `name` of `package`."""
    content: dict[str, Any] = json.loads(files(package).joinpath(name).read_text(encoding="utf-8"))
    return content


def _advice(entry: Mapping[str, Any]) -> str:
    older, newer = entry["between"]
    gone = f"It was removed between {older} and {newer}"
    if why := entry.get("why"):
        return f"{gone}: {why}"
    instead = entry["instead"]
    return f"{gone}; write {instead}." if instead else f"{gone} without a successor; leave it out."
