"""The JSON files beside the modules that read them."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def read_json(package: str, name: str) -> dict[str, Any]:
    """The JSON object in file `name` of `package`."""
    content: dict[str, Any] = json.loads(files(package).joinpath(name).read_text(encoding="utf-8"))
    return content
