"""Writes engine_args into an INI inventory, for `deploy tune --write`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from headfirst.common.errors import InputError
from headfirst.decide.cluster.source import locate_variable

_NAME = "engine_args"
_ASSIGNMENT = re.compile(rf"\s*{_NAME}\s*=")
_SECTION = re.compile(r"\s*\[all:vars\]\s*(?:#.*)?$")


def line_of(arguments: Sequence[str]) -> str:
    """The assignment as INI has it; Ansible takes the value as it is."""
    return f"{_NAME}={shlex.join(arguments)}"


def write_arguments(inventories: Sequence[Path], arguments: Sequence[str]) -> Path:
    """Replace the line where engine_args is set, or add one below [all:vars]; returns the file.

    InputError, with the line to write, where this is no INI file with such a place.
    """
    place = locate_variable(_NAME, tuple(inventories))
    file = Path(place.rpartition(":")[0]) if place else inventories[0]
    lines = file.read_text().splitlines(keepends=True) if file.is_file() else []
    number = int(place.rpartition(":")[2]) - 1 if place else None
    new = line_of(arguments) + "\n"
    if number is not None and _ASSIGNMENT.match(lines[number]) and not lines[number].rstrip().endswith("\\"):
        lines[number] = new
    elif number is None and (sections := [n for n, line in enumerate(lines) if _SECTION.match(line)]):
        lines.insert(sections[0] + 1, new)
    else:
        raise InputError(
            f"{_NAME} cannot be written into this file", where=str(file), hint=f"Write: {new.strip()}"
        )
    file.write_text("".join(lines))
    return file
