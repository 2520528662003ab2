"""DOCUMENTATION of each module is what ansible-doc reads; `./test long` has all of ansible-test sanity."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from together import together

MODULES = Path(__file__).resolve().parents[2] / "plugins" / "modules"
PLUGINS = "ansible_collections.headfirst.serving.plugins.modules"
OPTION = {"aliases", "choices", "default", "description", "elements", "required", "suboptions", "type"}
RETURNED = {"contains", "description", "elements", "returned", "sample", "type"}


def unknown(options: dict[str, dict[str, Any]], known: set[str]) -> Iterator[str]:
    """Keys that no option has: such as the part of a sentence after a comma."""
    for name, option in options.items():
        yield from (f"{name}: {key}" for key in option if key not in known)
        for part in ("suboptions", "contains"):
            yield from unknown(option.get(part, {}), known)


@together("name", sorted(path.stem for path in MODULES.glob("[a-z]*.py")))
def test_an_option_has_only_keys_that_ansible_has(name: str) -> None:
    module = importlib.import_module(f"{PLUGINS}.{name}")
    assert list(unknown(yaml.safe_load(module.DOCUMENTATION).get("options", {}), OPTION)) == []
    assert list(unknown(yaml.safe_load(module.RETURN) or {}, RETURNED)) == []
