"""Packages that are not there, or must not be loaded: whatever is imported from them is made up."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
from collections.abc import Callable, Collection
from types import ModuleType
from typing import Any


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes every module of the top packages `names`: `make` gets the name of one."""

    def __init__(self, names: Collection[str], make: Callable[[str], Any]) -> None:
        self._names, self._make = names, make

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """The spec of a stand-in; None for other packages."""
        if name.partition(".")[0] not in self._names:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Any:
        """The stand-in; it has modules below it."""
        module = self._make(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""
