"""What the tools for engines' options share; it imports nothing that an engine's environment may lack."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def describe(
    action: argparse.Action, types: Mapping[str, str], choices: Mapping[str, Sequence[str]] | None = None
) -> dict[str, Any]:
    """One option as headfirst.decide.engines.arguments reads it: its spellings and what it takes.

    `types`: name of the function that parses a value -> its type in the specification. `choices`: values by
    destination that the engine checks after its parser.
    """
    option: dict[str, Any] = {"flags": list(action.option_strings), "dest": action.dest}
    if action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction):
        return option | {"type": "flag"}
    option["type"] = types.get(getattr(action.type, "__name__", "str"), "str")
    if action.nargs is not None:
        option["nargs"] = action.nargs
    values = (choices or {}).get(action.dest) or action.choices
    if values is not None:
        option["choices"] = sorted((value for value in values if value is not None), key=str)
    return option


def write(folder: Path, version: str, source: str, options: Sequence[Mapping[str, Any]]) -> None:
    """Write arguments-VERSION.json, an option a line, and report."""
    target = folder / f"arguments-{version}.json"
    lines = ",\n".join(f"  {json.dumps(option, ensure_ascii=False)}" for option in options)
    target.write_text(f'{{\n "source": "{source}",\n "options": [\n{lines}\n ]\n}}\n', encoding="utf-8")
    print(f"{target}: {len(options)} options")
