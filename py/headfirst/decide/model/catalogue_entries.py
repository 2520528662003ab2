"""Check of a catalogue that a person or a hub wrote, entry by entry. The format is that of catalogue.json."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from headfirst.common.errors import HeadfirstError, InputError
from headfirst.common.safetensors_file import DTYPE_BITS
from headfirst.common.untrusted import UntrustedError, file_listing, integer, json_object, line, shown
from headfirst.decide.model.measured import Part

Entry = dict[str, Any]
ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
RELEASED = re.compile(r"20\d\d(-(0[1-9]|1[0-2]))?", re.ASCII)
_SHARD_NAME = re.compile(r"[\w.-]*(\{:0?\d{0,2}d?\}[\w.-]*)?", re.ASCII)
_MOST_BYTES = 1 << 50
_MOST_SHARDS = 100_000
_PARTS = [part.value for part in Part]


def checked(
    document: Any, *, where: str, known: Mapping[str, Entry], remote_code: bool = False
) -> dict[str, Entry]:
    """The entries by hub id. `known`: other entries that `same_as` may name; `remote_code`: an entry may list
    commits whose code may run.

    Raises InputError at `where` that names the entry and what is wrong in it.
    """
    entries: dict[str, Entry] = {}
    try:
        for id, entry in json_object(document, what="a catalogue", limit=100_000).items():
            if not ID.fullmatch(id):
                raise UntrustedError(f"{shown(id)} is not a hub's id, such as Qwen/Qwen3-32B")
            entries[id] = _entry(id, entry, remote_code=remote_code)
        _check_bases(entries, known)
    except HeadfirstError as error:
        raise InputError(error.what, where=where, hint=error.hint) from None
    return entries


def _entry(id: str, entry: Any, *, remote_code: bool) -> Entry:
    fields = json_object(entry, what=f"the entry {id}")
    if "remote_code" in fields and not remote_code:
        raise UntrustedError(
            f"the entry {id} has remote_code, which the built-in catalogue alone may have",
            hint="Set trust_remote_code=true in the inventory after you have read the model's Python files.",
        )
    if unknown := sorted(fields.keys() - _FIELDS.keys() - {"remote_code"}):
        raise UntrustedError(
            f"the entry {id} has an unknown key: {shown(unknown[0])}",
            hint=f"Keys of an entry: {', '.join(_FIELDS)}.",
        )
    for name, value in fields.items():
        try:
            if name in _FIELDS:
                _FIELDS[name](value, name)
        except UntrustedError as error:
            raise UntrustedError(f"the entry {id}: {error.what}") from None
    required = () if "same_as" in fields else ("source", "config", "weights")
    if missing := [name for name in required if name not in fields]:
        raise UntrustedError(f"the entry {id} has no {missing[0]}")
    return fields


def _check_bases(entries: Mapping[str, Entry], known: Mapping[str, Entry]) -> None:
    every = {**known, **entries}
    for id in entries:
        chain = [id]
        while base := every[chain[-1]].get("same_as"):
            if base not in every:
                raise UntrustedError(f"same_as of the entry {id}: the catalogue has no {shown(base)}")
            if base in chain:
                raise UntrustedError(f"same_as of the entry {id} leads back to {base}")
            chain.append(base)


def _text(value: Any, what: str) -> None:
    line(value, what=what, limit=2000)


def _released(value: Any, what: str) -> None:
    if not isinstance(value, str) or not RELEASED.fullmatch(value):
        raise UntrustedError(f"{what} is not a month such as 2025-07, or a year")


def _flag(value: Any, what: str) -> None:
    if not isinstance(value, bool):
        raise UntrustedError(f"{what} is not true or false")


def _bytes(value: Any, what: str) -> None:
    integer(value, what=what, high=_MOST_BYTES)


def _counts(names: list[str]) -> Callable[[Any, str], None]:
    def check(value: Any, what: str) -> None:
        for name, count in json_object(value, what=what, limit=100).items():
            if name not in names:
                raise UntrustedError(f"{what} has an unknown name: {shown(name)}")
            integer(count, what=f"{name} in {what}", high=_MOST_BYTES)

    return check


def _plain_parts(value: Any, what: str) -> None:
    if not isinstance(value, list) or not all(part in _PARTS for part in value):
        raise UntrustedError(f"{what} is not a list of {', '.join(_PARTS)}")


def _shards(value: Any, what: str) -> None:
    integer(value, what=what, low=1, high=_MOST_SHARDS)


def _shard_name(value: Any, what: str) -> None:
    if not isinstance(value, str) or not value or not _SHARD_NAME.fullmatch(value):
        raise UntrustedError(f"{what} is not a name such as model-{{:05d}}-of-00004.safetensors")


def _files(value: Any, what: str) -> None:
    files = json_object(value, what=what, limit=_MOST_SHARDS)
    for name in file_listing(files):
        integer(files[name], what=f"the size of {name} in {what}", high=_MOST_BYTES)


def _object(value: Any, what: str) -> None:
    json_object(value, what=what)


def _fields(checks: Mapping[str, Callable[[Any, str], None]]) -> Callable[[Any, str], None]:
    def check(value: Any, what: str) -> None:
        for name, content in json_object(value, what=what, limit=100).items():
            if name not in checks:
                raise UntrustedError(f"{what} has an unknown key: {shown(name)}")
            checks[name](content, f"{name} in {what}")

    return check


_MEASURED = _fields(
    {
        "by_dtype": _counts(list(DTYPE_BITS)),
        "by_part": _counts(_PARTS),
        "bf16_by_part": _counts(_PARTS),
        "draft_layers": _bytes,
    }
)
_STORED = _fields({part: _counts(list(DTYPE_BITS)) for part in _PARTS})
_WEIGHTS = _fields(
    {
        "total_bytes": _bytes,
        "total_bytes_are": _text,
        "parameters": _counts(list(DTYPE_BITS)),
        "published_parameters": _bytes,
        "shards": _shards,
        "shard_name": _shard_name,
        "plain_parts": _plain_parts,
        "tied_head_stored": _flag,
        "stored": _STORED,
        "bf16": _counts(_PARTS),
        "files": _files,
        "measured": _MEASURED,
    }
)
# What an entry may have beside `remote_code`, which the built-in catalogue alone may have.
_FIELDS: dict[str, Callable[[Any, str], None]] = {
    "source": _text,
    "config": _object,
    "same_as": _text,
    "changes": _object,
    "weights": _WEIGHTS,
    "sentence_transformers": _flag,
    "chat_template": _flag,
    "hf_quant_config": _object,
    "released": _released,
}
