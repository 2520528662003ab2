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
from headfirst.control.inventory.reading import HostReading, Reading, ServiceReading, read
from headfirst.decide.cluster.settings import PREFIX

_NAME = "engine_args"
_ASSIGNMENT = re.compile(rf"\s*(?:{PREFIX})?{_NAME}\s*=")
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
    before, value = read(inventories, extra_vars, None), shlex.join(arguments)
    line = before.prefix + line_of(arguments)
    for file, at, replaces in _places(before, inventories[0], service):
        lines = text_of(file).splitlines(keepends=True)
        body = lines[at].rstrip("\r\n")
        end = lines[at].removeprefix(body) or "\n"
        meant, group = copy.deepcopy(before.stated), _section(lines, at).partition(":")[0]
        meant["groups"].setdefault(group, {"vars": {}})["vars"][before.prefix + _NAME] = repr(value)
        lines[at] = (line if replaces else body + end + line) + end
        after = reread(inventories, file, "".join(lines), meant, extra_vars)
        if after and all(each.values.get(_NAME) == value for each in _readers(after, service)):
            rewrite_file(file, "".join(lines))
            return file
    raise InputError(
        f"{_NAME} cannot be written into this inventory",
        where=_readers(before, service)[0].where.get(_NAME) or str(inventories[0]),
        hint=f"Write: {line}" + (f" for the group {service}" if service else ""),
    )


def _places(reading: Reading, inventory: Path, service: str | None) -> Iterator[tuple[Path, int, bool]]:
    """File, line from 0, and whether the new line replaces that one or follows it."""
    section = f"{service or 'all'}:vars"
    name, _, number = (_readers(reading, service)[0].where.get(_NAME) or "").rpartition(":")
    if number.isdigit():
        lines, at = text_of(Path(name)).splitlines(), int(number) - 1
        if _ASSIGNMENT.match(lines[at]) and (service is None or _section(lines, at) == section):
            yield Path(name), at, True
    if inventory.is_file():
        lines = text_of(inventory).splitlines()
        yield from ((inventory, at, False) for at in range(len(lines)) if _header(lines[at]) == section)


def _readers(reading: Reading, service: str | None) -> Sequence[HostReading | ServiceReading]:
    """Who has the variable: the service, or the hosts of the only one."""
    if service:
        return [reading.services[service]]
    return [reading.hosts[host] for name in ("head", "workers") for host in reading.groups[name]]


def _section(lines: Sequence[str], at: int) -> str:
    return next(filter(None, map(_header, lines[at::-1])), "")


def _header(line: str) -> str:
    match = _HEADER.match(line)
    return match[1].strip() if match else ""
