"""Writes engine_args into an INI inventory, for `deploy tune --write`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from headfirst.common.errors import InputError

_NAME = "engine_args"
_MENTION = re.compile(rf"(?:^|[\s{{{{,])[\"']?{_NAME}[\"']?\s*[=:]")
_ASSIGNMENT = re.compile(rf"\s*{_NAME}\s*=")
_SECTION = re.compile(r"\s*\[all:vars\]\s*(?:#.*)?$")


def line_of(arguments: Sequence[str]) -> str:
    """The assignment as INI has it; Ansible takes the value as it is."""
    return f"{_NAME}={shlex.join(arguments)}"


def write_arguments(inventories: Sequence[Path], arguments: Sequence[str]) -> Path:
    """Replace the line where engine_args is set, or add one below [all:vars]; returns the file.

    InputError, with the line to write, where this is no INI file with such a place.
    """
    file, number = _first_mention(inventories) or (inventories[0], None)
    lines = file.read_text().splitlines(keepends=True) if file.is_file() else []
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


def _first_mention(inventories: Sequence[Path]) -> tuple[Path, int] | None:
    """File and index of the line that sets engine_args first; None where no file does."""
    for file in (file for inventory in inventories for file in _files_of(inventory)):
        try:
            lines = file.read_text().splitlines()
        except UnicodeDecodeError:  # an executable or vaulted inventory
            continue
        for number, line in enumerate(lines):
            if _MENTION.search(line) and not line.lstrip().startswith(("#", ";")):
                return file, number
    return None


def _files_of(inventory: Path) -> Iterator[Path]:
    """The inventory's own files, then group_vars and host_vars beside it."""
    folder = inventory if inventory.is_dir() else inventory.parent
    yield from (
        sorted(file for file in folder.iterdir() if file.is_file()) if inventory.is_dir() else [inventory]
    )
    for kind in ("group_vars", "host_vars"):
        yield from sorted(file for file in (folder / kind).rglob("*") if file.is_file())
