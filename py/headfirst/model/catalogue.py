"""A few published models, kept as data (catalogue.json) for plans made without a network.

Each entry has its source, the keys of its config.json that a plan reads, and its sizes: which of them
were published and which were computed is said in `total_bytes_are`.
"""

from __future__ import annotations

import difflib
import json
from functools import cache
from importlib.resources import files
from typing import Any

from headfirst.model.checkpoint import ELEMENT_BYTES, Checkpoint, Shard, from_config
from headfirst.model.parameters import scale_parameters


@cache
def _entries() -> dict[str, dict[str, Any]]:
    text = files("headfirst.model").joinpath("catalogue.json").read_text(encoding="utf-8")
    entries: dict[str, dict[str, Any]] = json.loads(text)
    return entries


def ids() -> list[str]:
    """The hub ids of all models in the catalogue."""
    return list(_entries())


def nearest(id: str) -> list[str]:
    """At most three ids of the catalogue that resemble `id`, the nearest first."""
    lowered = {known.lower(): known for known in ids()}
    return [lowered[name] for name in difflib.get_close_matches(id.lower(), lowered, n=3, cutoff=0.6)]


def trusted_commit(id: str, source: str) -> str | None:
    """The commit of `id` on the hub `source` whose Python code may run; None where the catalogue has none."""
    known = {name.lower(): name for name in ids()}.get(id.lower())
    listed: dict[str, str] = _entries()[known].get("remote_code", {}).get("commits", {}) if known else {}
    return listed.get(source)


def lookup(id: str, *, revision: str | None = None, note: str | None = None) -> Checkpoint | None:
    """The catalogue's description of `id` (in any case of letters), or None where it has none."""
    known = {name.lower(): name for name in ids()}.get(id.lower())
    if known is None:
        return None
    entry = _entries()[known]
    weights = entry["weights"]
    described = from_config(
        entry["config"],
        id=id,
        revision=revision,
        total_bytes=weights["total_bytes"],
        bytes_by_dtype={name: count * ELEMENT_BYTES[name] for name, count in weights["parameters"].items()},
        scale_bytes=0,
        shards=tuple(
            Shard(name=weights["shard_name"].format(number), bytes=None)
            for number in range(1, weights["shards"] + 1)
        ),
        source="catalogue",
        where=f"catalogue entry {id}",
        note=note,
    )
    scales = scale_parameters(described)
    return described.model_copy(update={"scale_bytes": scales * ELEMENT_BYTES["F32"]})
