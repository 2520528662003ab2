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
    gone = [] if keep else _leaving(path, reading, old)
    first, second = (_read_line(path, reading, line) for line in (place, spare))
    changed = dict.fromkeys(gone) | {place: second, spare: first if keep else None}
    moves = {place.group: {old: new}, spare.group: {new: old}}
    return _edited(path, reading, changed, _meant(reading, moves, None if keep else old), extra_vars)


def without(path: Path, host: str, extra_vars: Sequence[str] = ()) -> str:
    """The text of the inventory without a host. Raises InputError as `with_spare` does."""
    reading = read([path], extra_vars, None)
    changed = dict.fromkeys(_leaving(path, reading, host))
    for line in changed:
        if line.group == "head":
            hint = f"Replace it by a spare: deploy replace {path} {host} --with SPARE"
            raise InputError(f"{host} is the head, and no other host is", where=line.where, hint=hint)
    return _edited(path, reading, changed, _meant(reading, {}, host), extra_vars)


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
    before = {line: _read_line(path, reading, line) for line in changed}
    lines = text_of(path).splitlines(keepends=True)
    for line, body in changed.items():
        end = lines[line.number - 1].removeprefix(before[line])
        lines[line.number - 1] = "" if body is None else body + end
    if reread([path], path, text := "".join(lines), meant, extra_vars) is None:
        what = "with these lines changed, Ansible would read other hosts, groups or variables than meant"
        raise _by_hand(what, path, [line.where for line in changed])
    return text


def _meant(reading: Reading, moves: Mapping[str, Mapping[str, str]], gone: str | None) -> dict[str, Any]:
    """What the inventory is to state: hosts of a group that others replace, and one that is in none."""
    groups = {}
    for name, group in reading.stated["groups"].items():
        members = [moves.get(name, {}).get(host, host) for host in group["hosts"]]
        groups[name] = {**group, "hosts": [host for host in members if host != gone]}
    hosts = {host: stated for host, stated in reading.stated["hosts"].items() if host != gone}
    return {"hosts": hosts, "groups": groups}


def _lines(path: Path, reading: Reading, host: str) -> list[HostLine]:
    """The lines that name a host. InputError where none does, with those that do in another form."""
    if lines := [line for line in reading.lines if line.host == host]:
        return lines
    if host not in (listed_hosts := reading.stated["hosts"]):
        what = f"no line of the inventory names {host}"
        raise InputError(what, where=str(path), hint=f"Its hosts are {', '.join(listed_hosts)}.")
    word = re.compile(rf"[^#]*(?<![\w.-]){re.escape(host)}(?![\w.-])")
    numbered = enumerate(text_of(path).splitlines(), 1) if path.is_file() else ()
    places = [f"{path}:{number}" for number, line in numbered if word.match(line)]
    raise _by_hand(f"no line of an INI inventory names {host}", path, places)


def _place(path: Path, reading: Reading, host: str, roots: Sequence[str], role: str) -> HostLine:
    """The line that gives a host its place in one of these groups or in a child of them."""
    groups, pending = set(), [*roots]
    while pending:
        groups.add(name := pending.pop())
        pending += reading.stated["groups"].get(name, {}).get("children", ())
    lines = _lines(path, reading, host)
    here = [line for line in lines if line.group in groups]
    if len(here) != 1:
        what = f"{host} is listed in several places" if here else f"{host} is not {role}"
        raise _by_hand(what, path, [line.where for line in here or lines])
    return here[0]


def _read_line(path: Path, reading: Reading, line: HostLine) -> str:
    """What the line has, without its end. InputError for one of several hosts, or of another file."""
    if sum(other.where == line.where for other in reading.lines) > 1:
        raise _by_hand(f"{line.host} is in a range of hosts", path, [line.where])
    if line.file != str(path):
        raise _by_hand("only an inventory of one file can be changed", path, [line.where])
    return text_of(path).splitlines()[line.number - 1]


def _leaving(path: Path, reading: Reading, host: str) -> list[HostLine]:
    """The lines of a host that leaves. InputError where something else than a rank runs there."""
    lines = _lines(path, reading, host)
    for line in lines:
        if line.group in _OTHER_GROUPS:
            raise InputError(
                f"{host} is also in [{line.group}]",
                where=line.where,
                hint=f"List another host in [{line.group}] first, and run: deploy up {path}",
            )
    return lines


def _by_hand(what: str, path: Path, places: Sequence[str]) -> InputError:
    edit = f"Edit {', '.join(dict.fromkeys(places)) or 'it'} by hand, with a line for each host"
    hint = f"{edit}, a spare in [spares], another one in the group of its rank. Then: deploy up {path}"
    return InputError(what, where=places[0] if places else str(path), hint=hint)
