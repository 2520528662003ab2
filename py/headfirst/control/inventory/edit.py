"""Changes of an INI inventory that keep everything else in it: a host takes another's place, or leaves.

Lines are changed. Before anybody writes the result Ansible reads it, and has to find what was meant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headfirst.common.errors import InputError
from headfirst.common.state_files import text_of
from headfirst.control.inventory.reading import HostLine, Reading, read

SPARES = "spares"
_OTHER_GROUPS = ("prefill", "decode", "webui", "router", "monitoring")


def with_spare(path: Path, old: str, new: str, extra_vars: Sequence[str] = (), *, keep: bool) -> str:
    """The text of the inventory where the spare `new` has the place of `old`.

    `keep` makes `old` a spare; without it no line has `old`. InputError, with the lines, where that cannot be
    done by exchanging lines.
    """
    reading = read([path], extra_vars, None)
    place = _place(path, reading, old, ("head", "workers", *reading.services), "the host of a rank")
    spare = _place(path, reading, new, (SPARES,), "a spare")
    _refuse_other_groups(path, reading, old, keep=keep)
    bodies = [text_of(path).splitlines()[_index(path, reading, line)] for line in (place, spare)]
    changed: dict[HostLine, str | None] = {} if keep else dict.fromkeys(_lines(reading, old))
    changed |= {place: bodies[1], spare: bodies[0] if keep else None}
    moves = {place.group: {old: new}, spare.group: {new: old}}
    return _edited(path, reading, changed, _meant(reading, moves, None if keep else old), extra_vars)


def without(path: Path, host: str, extra_vars: Sequence[str] = ()) -> str:
    """The text of the inventory without a host. Raises InputError as `with_spare` does."""
    reading = read([path], extra_vars, None)
    lines = _lines(reading, host)
    if not lines:
        raise _unknown(path, reading, host)
    _refuse_other_groups(path, reading, host, keep=False)
    return _edited(path, reading, dict.fromkeys(lines), _meant(reading, {}, host), extra_vars)


def reread(
    paths: Sequence[Path], file: Path, text: str, meant: Mapping[str, Any], extra_vars: Sequence[str]
) -> Reading | None:
    """What Ansible reads where `file` has this text; None where its `stated` is not `meant`."""
    try:
        reading = read(paths, extra_vars, None, {file: text})
    except InputError:
        return None
    return reading if reading.stated == meant else None


def _edited(
    path: Path,
    reading: Reading,
    changed: Mapping[HostLine, str | None],
    meant: Mapping[str, Any],
    extra_vars: Sequence[str],
) -> str:
    """The text with other lines, None for none; each keeps its end."""
    lines = text_of(path).splitlines(keepends=True)
    for line, body in changed.items():
        number = _index(path, reading, line)
        end = lines[number].removeprefix(lines[number].splitlines()[0])
        lines[number] = "" if body is None else body + end
    text = "".join(lines)
    if reread([path], path, text, meant, extra_vars) is None:
        raise InputError(
            "with these lines changed, Ansible would read other hosts, groups or variables than meant",
            where=next(iter(changed)).where,
            hint=_by_hand(path, [line.where for line in changed]),
        )
    return text


def _meant(reading: Reading, moves: Mapping[str, Mapping[str, str]], gone: str | None) -> dict[str, Any]:
    """What the inventory is to state: hosts of a group that others replace, and one that is in none."""

    def members(name: str, hosts: Sequence[str]) -> list[str]:
        return [new for host in hosts if (new := moves.get(name, {}).get(host, host)) != gone]

    groups = reading.stated["groups"].items()
    return {
        "hosts": {host: stated for host, stated in reading.stated["hosts"].items() if host != gone},
        "groups": {name: {**group, "hosts": members(name, group["hosts"])} for name, group in groups},
    }


def _lines(reading: Reading, host: str) -> list[HostLine]:
    return [line for line in reading.lines if line.host == host]


def _place(path: Path, reading: Reading, host: str, roots: Sequence[str], role: str) -> HostLine:
    """The line that gives a host its place in one of these groups or in a child of them."""
    groups, pending = set(), [*roots]
    while pending:
        groups.add(name := pending.pop())
        pending += reading.stated["groups"].get(name, {}).get("children", ())
    lines = _lines(reading, host)
    if not lines:
        raise _unknown(path, reading, host)
    here = [line for line in lines if line.group in groups]
    if len(here) != 1:
        listed = _by_hand(path, [line.where for line in here])
        raise InputError(
            f"{host} is listed in several places" if here else f"{host} is not {role}",
            where=(here or lines)[0].where,
            hint="List the spare in [spares], each other host in the group of its rank."
            + (f" {listed}" if here else ""),
        )
    return here[0]


def _index(path: Path, reading: Reading, line: HostLine) -> int:
    """The number of the line, from 0. InputError where it has several hosts."""
    if sum(other.where == line.where for other in reading.lines) > 1:
        raise InputError(
            f"{line.host} is in a range of hosts",
            where=line.where,
            hint=f"Write one line for each host. {_by_hand(path, [line.where])}",
        )
    return int(line.where.rpartition(":")[2]) - 1


def _refuse_other_groups(path: Path, reading: Reading, host: str, *, keep: bool) -> None:
    for line in _lines(reading, host):
        if line.group in _OTHER_GROUPS and not keep:
            raise InputError(
                f"{host} is also in [{line.group}]",
                where=line.where,
                hint=f"List another host in [{line.group}] first, and run: deploy up {path}",
            )


def _unknown(path: Path, reading: Reading, host: str) -> InputError:
    """No INI line names the host; the line that does in another form."""
    word = re.compile(rf"(?<![\w.-]){re.escape(host)}(?![\w.-])")
    lines = text_of(path).splitlines() if host in reading.stated["hosts"] else []
    places = [
        f"{path}:{number}" for number, line in enumerate(lines, 1) if word.search(line.partition("#")[0])
    ]
    return InputError(
        f"no line of an INI inventory names {host}" if places else f"no line of the inventory names {host}",
        where=places[0] if places else str(path),
        hint=f"Only an INI inventory with a line for each host can be changed. {_by_hand(path, places)}",
    )


def _by_hand(path: Path, places: Sequence[str]) -> str:
    return f"Edit {', '.join(dict.fromkeys(places)) or 'it'} by hand, then: deploy up {path}"
