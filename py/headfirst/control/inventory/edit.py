"""Changes of an INI inventory that keep everything else in it: a host takes another's place, or leaves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from headfirst.common.errors import InputError
from headfirst.control.inventory.reading import HostLine, read

SPARES = "spares"
_OTHER_GROUPS = ("webui", "router", "monitoring")


def with_spare(path: Path, old: str, new: str, extra_vars: Sequence[str] = (), *, keep: bool) -> str:
    """The text of the inventory where the spare `new` has the place of `old`.

    `keep` makes `old` a spare. Raises InputError where the lines of the two cannot be distinguished.
    """
    found = read([path], extra_vars, None).lines
    place, spare = _line(path, found, old, spare=False), _line(path, found, new, spare=True)
    _refuse_other_groups(path, found, old, keep=keep)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    lines[place], lines[spare] = lines[spare], lines[place] if keep else ""
    return "".join(lines)


def without(path: Path, host: str, extra_vars: Sequence[str] = ()) -> str:
    """The text of the inventory without a host. Raises InputError as `with_spare` does."""
    found = read([path], extra_vars, None).lines
    gone = {_line(path, found, host, spare=group == SPARES) for group in _groups(found, host)}
    if not gone:
        raise _unknown(path, host)
    _refuse_other_groups(path, found, host, keep=False)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for number, line in enumerate(lines) if number not in gone)


def _groups(found: Iterable[HostLine], host: str) -> list[str]:
    return [one.group for one in found if one.host == host]


def _line(path: Path, found: Sequence[HostLine], host: str, *, spare: bool) -> int:
    """The line, from 0, that gives a host its place among the ranks, or among the spares."""
    own = [one for one in found if one.host == host]
    if not own:
        raise _unknown(path, host)
    here = [one for one in own if (one.group == SPARES) is spare and one.group not in _OTHER_GROUPS]
    if len(here) != 1:
        wanted = "a spare" if spare else "the host of a rank"
        raise InputError(
            f"{host} is not {wanted}" if not here else f"{host} is listed in several groups",
            where=own[0].where,
            hint="List the spare in [spares], each other host in the group of its rank.",
        )
    where = here[0].where
    if sum(one.where == where for one in found) > 1:
        raise InputError(f"{host} is in a range of hosts", where=where, hint="Write one line for each host.")
    name, _, number = where.rpartition(":")
    if Path(name) != path:
        raise InputError(f"{host} is in another file", where=where, hint=f"Give that file: {name}")
    return int(number) - 1


def _refuse_other_groups(path: Path, found: Iterable[HostLine], host: str, *, keep: bool) -> None:
    for one in found:
        if one.host == host and one.group in _OTHER_GROUPS and not keep:
            raise InputError(
                f"{host} is also in [{one.group}]",
                where=one.where,
                hint=f"List another host in [{one.group}] first, and run: deploy up {path}",
            )


def _unknown(path: Path, host: str) -> InputError:
    return InputError(
        f"no line of the inventory names {host}",
        where=str(path),
        hint="It must be an INI inventory with a line for each host. Edit another one by hand.",
    )
