"""Writes engine_args into an INI inventory, for `deploy tune --write`."""

from __future__ import annotations

import copy
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from headfirst.common.errors import InputError
from headfirst.common.state_files import rewrite_file, text_of
from headfirst.control.inventory.edit import reread
from headfirst.control.inventory.reading import read

_NAME = "engine_args"
_MENTION = re.compile(rf"(?:^|[\s{{{{,])[\"']?{_NAME}[\"']?\s*[=:]")
_ASSIGNMENT = re.compile(rf"\s*{_NAME}\s*=")
_HEADER = re.compile(r"\s*\[([^\]]+)\]\s*(?:[#;].*)?$")


def line_of(arguments: Sequence[str]) -> str:
    """The assignment as INI has it; Ansible takes the value as it is."""
    return f"{_NAME}={shlex.join(arguments)}"


def write_arguments(
    inventories: Sequence[Path],
    arguments: Sequence[str],
    service: str | None = None,
    extra_vars: Sequence[str] = (),
) -> Path:
    """Replace the line where engine_args is set, or add one below [all:vars]; returns the file.

    For a service with a name both are in [SERVICE:vars]. InputError, with the line to write, where this is no
    INI file with such a place, or Ansible would not read these arguments, or would read another change too.
    """
    section = f"{service or 'all'}:vars"
    mentions = [mention for mention in _mentions(inventories) if _counts(mention, service)]
    file, number, of = mentions[0] if mentions else (inventories[0], None, section)
    lines = text_of(file).splitlines(keepends=True) if file.is_file() else []
    place = None
    if number is None:
        place = next((index for index, line in enumerate(lines) if _section(line) == section), None)
    elif _ASSIGNMENT.match(lines[number]) and not lines[number].rstrip().endswith("\\"):
        place = number if service is None or of == section else None
    if place is not None:
        body = lines[place].rstrip("\r\n")
        end = lines[place].removeprefix(body) or "\n"
        lines[place] = ("" if mentions else body + end) + line_of(arguments) + end
        if _is_read(inventories, file, "".join(lines), of or section, arguments, service, extra_vars):
            rewrite_file(file, "".join(lines))
            return file
    raise InputError(
        f"{_NAME} cannot be written into this file",
        where=str(file),
        hint=f"Write: {line_of(arguments)}" + (f" for the group {service}" if service else ""),
    )


def _is_read(
    inventories: Sequence[Path],
    file: Path,
    text: str,
    section: str,
    arguments: Sequence[str],
    service: str | None,
    extra_vars: Sequence[str],
) -> bool:
    """Whether Ansible reads these arguments, and nothing else that is new, where `file` has this text."""
    value, (group, _, _) = shlex.join(arguments), section.partition(":")
    meant = copy.deepcopy(read(inventories, extra_vars, None).stated)
    meant["groups"][group]["vars"][_NAME] = repr(value)
    reading = reread(inventories, file, text, meant, extra_vars)
    if reading is None:
        return False
    ranks = (reading.hosts[host] for name in ("head", "workers") for host in reading.groups[name])
    readers = [reading.services[service]] if service else ranks
    return all(reader.values.get(_NAME) == value for reader in readers)


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
