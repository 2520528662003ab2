"""An engine's log.yml: the data of its log profile, read once."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any


@cache
def read(folder: Path) -> dict[str, Any]:
    """The data of `folder`/log.yml; its keys are in the collection's plugin_utils/engine_log_rules.py."""
    import yaml

    data: dict[str, Any] = yaml.safe_load((folder / "log.yml").read_text(encoding="utf-8"))
    return data
