"""Changes of an INI inventory that keep everything else in it: a host takes another's place, or leaves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from headfirst.common.errors import InputError
from headfirst.control.inventory.reading import HostLine, read

SPARES = "spares"
_OTHER_GROUPS = ("prefill", "decode", "webui", "router", "monitoring")


def with_spare(path: Path, old: str, new: str, extra_vars: Sequence[str] = (), *, keep: bool) -> str:
    """The text of the inventory where the spare `new` has the place of `old`.

    `keep` makes `old` a spare. Raises InputError where the lines of the two cannot be distinguished.
    """
    host_lines = read([path], extra_vars, None).lines
    place, spare = _line(path, host_lines, old, spare=False), _line(path, host_lines, new, spare=True)
    _refuse_other_groups(path, host_lines, old, keep=keep)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    lines[place], lines[spare] = lines[spare], lines[place] if keep else ""
    return "".join(lines)


def without(path: Path, host: str, extra_vars: Sequence[str] = ()) -> str:
    """The text of the inventory without a host. Raises InputError as `with_spare` does."""
    host_lines = read([path], extra_vars, None).lines
    gone = {_line(path, host_lines, host, spare=group == SPARES) for group in _groups(host_lines, host)}
    if not gone:
        raise _unknown(path, host)
    _refuse_other_groups(path, host_lines, host, keep=False)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for number, line in enumerate(lines) if number not in gone)


def _groups(host_lines: Iterable[HostLine], host: str) -> list[str]:
    return [line.group for line in host_lines if line.host == host]


def _line(path: Path, host_lines: Sequence[HostLine], host: str, *, spare: bool) -> int:
    """The line, from 0, that gives a host its place among the ranks, or among the spares."""
    lines = [line for line in host_lines if line.host == host]
    if not lines:
        raise _unknown(path, host)
    here = [line for line in lines if (line.group == SPARES) is spare and line.group not in _OTHER_GROUPS]
    if len(here) != 1:
        role = "a spare" if spare else "the host of a rank"
        raise InputError(
            f"{host} is not {role}" if not here else f"{host} is listed in several groups",
            where=lines[0].where,
            hint="List the spare in [spares], each other host in the group of its rank.",
        )
    where = here[0].where
    if sum(line.where == where for line in host_lines) > 1:
        raise InputError(f"{host} is in a range of hosts", where=where, hint="Write one line for each host.")
    name, _, number = where.rpartition(":")
    if Path(name) != path:
        raise InputError(f"{host} is in another file", where=where, hint=f"Give that file: {name}")
    return int(number) - 1


def _refuse_other_groups(path: Path, host_lines: Iterable[HostLine], host: str, *, keep: bool) -> None:
    for line in host_lines:
        if line.host == host and line.group in _OTHER_GROUPS and not keep:
            raise InputError(
                f"{host} is also in [{line.group}]",
                where=line.where,
                hint=f"List another host in [{line.group}] first, and run: deploy up {path}",
            )


def _unknown(path: Path, host: str) -> InputError:
    return InputError(
        f"no line of the inventory names {host}",
        where=str(path),
        hint="It must be an INI inventory with a line for each host. Edit another one by hand.",
    )
