"""The programs in tools/ as modules."""

from __future__ import annotations

import importlib.util
from types import ModuleType

from documented import ROOT


def load(name: str) -> ModuleType:
    """The module of `tools/NAME.py`."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
