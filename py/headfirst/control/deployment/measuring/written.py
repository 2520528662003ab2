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
_HEADER = re.compile(r"\s*\[([^\]]+)\]\s*(?:[#;].*)?$")


def line_of(arguments: Sequence[str]) -> str:
    """The assignment as INI has it; Ansible takes the value as it is."""
    return f"{_NAME}={shlex.join(arguments)}"


def write_arguments(
    inventories: Sequence[Path], arguments: Sequence[str], service: str | None = None
) -> Path:
    """Replace the line where engine_args is set, or add one below [all:vars]; returns the file.

    For a service with a name both are in [SERVICE:vars]. InputError, with the line to write, where this is no
    INI file with such a place.
    """
    section = f"{service or 'all'}:vars"
    mentions = [mention for mention in _mentions(inventories) if _counts(mention, service)]
    new = line_of(arguments) + "\n"
    if mentions:
        file, number, of = mentions[0]
        lines = file.read_text().splitlines(keepends=True)
        single = _ASSIGNMENT.match(lines[number]) and not lines[number].rstrip().endswith("\\")
        if single and (service is None or of == section):
            lines[number] = new
            return _written(file, lines)
    else:
        file = inventories[0]
        lines = file.read_text().splitlines(keepends=True) if file.is_file() else []
        headers = [number for number, line in enumerate(lines) if _section(line) == section]
        if headers:
            lines.insert(headers[0] + 1, new)
            return _written(file, lines)
    raise InputError(
        f"{_NAME} cannot be written into this file",
        where=str(file),
        hint=f"Write: {new.strip()}" + (f" for the group {service}" if service else ""),
    )


def _written(file: Path, lines: Sequence[str]) -> Path:
    file.write_text("".join(lines))
    return file


def _counts(mention: tuple[Path, int, str | None], service: str | None) -> bool:
    """Whether a line decides what the service has: that of another section of an INI file does not."""
    _, _, section = mention
    return service is None or section is None or section == f"{service}:vars" or ":" not in section


def _mentions(inventories: Sequence[Path]) -> Iterator[tuple[Path, int, str | None]]:
    """File and index of each line that sets engine_args, and the section of an INI file that it is in."""
    for file in (file for inventory in inventories for file in _files_of(inventory)):
        try:
            lines = file.read_text().splitlines()
        except UnicodeDecodeError:  # an executable or vaulted inventory
            continue
        section = None
        for number, line in enumerate(lines):
            section = _section(line) or section
            if _MENTION.search(line) and not line.lstrip().startswith(("#", ";")):
                yield file, number, section


def _section(line: str) -> str | None:
    header = _HEADER.match(line)
    return header[1].strip() if header else None


def _files_of(inventory: Path) -> Iterator[Path]:
    """The inventory's own files, then group_vars and host_vars beside it."""
    folder = inventory if inventory.is_dir() else inventory.parent
    yield from (
        sorted(file for file in folder.iterdir() if file.is_file()) if inventory.is_dir() else [inventory]
    )
    for kind in ("group_vars", "host_vars"):
        yield from sorted(file for file in (folder / kind).rglob("*") if file.is_file())
