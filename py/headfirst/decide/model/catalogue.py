"""Published models, kept as data (catalogue/ORGANISATION.json) for plans made without a network.

Each entry has its source, the keys of its config.json that a plan reads, and its weight files. What the
publisher states of the sizes is there (`total_bytes`, `parameters` by dtype); what is missing is computed
tensor by tensor from the dimensions, and `total_bytes_are` names which. Of architectures that parameters.py
does not have, tools/catalogue_sizes.py has written the sizes: `stored` (part -> dtype -> bytes) and, of
quantised models, `bf16` (part -> bytes in BF16). `same_as` names the entry whose
config an entry shares, but for its `changes`, and whose weight files it shares where it has none of its own.
In lists of modules a `*` between dots stands for each layer, where the publisher's list has its number.
`plain_parts` are parts of the model that its quantisation leaves as they are, `published_parameters` what
the publisher's page states and a test compares. An entry whose tensors were read has `measured`, the sums
over the headers of its weight files, and nothing of it is computed; of a hub it has `files` (bytes by name).

`extend` adds the user's entries, which control/checkpoints/user_catalogue.py reads.
"""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from headfirst.common.safetensors_file import DTYPE_BITS
from headfirst.decide.model import parameters, releases
from headfirst.decide.model.checkpoint import Checkpoint, Shard
from headfirst.decide.model.config import WeightFiles, from_config
from headfirst.decide.model.measured import Measured, Part

_SHARD_BYTES = 5 * 10**9


_extension: dict[str, dict[str, Any]] = {}


@cache
def built_in() -> dict[str, dict[str, Any]]:
    """The entries that Headfirst ships, by hub id."""
    entries: dict[str, dict[str, Any]] = {}
    for file in files("headfirst.decide.model").joinpath("catalogue").iterdir():
        entries.update(json.loads(file.read_text(encoding="utf-8")))
    return {id: entries[id] for id in sorted(entries, key=str.lower)}


def extend(entries: Mapping[str, dict[str, Any]]) -> None:
    """Add the user's checked entries to the built-in ones, in place of those that were added before.

    An entry replaces the one of the same id, in any case of letters.
    """
    global _extension
    _extension = dict(entries)
    lookup.cache_clear()


def _entries() -> dict[str, dict[str, Any]]:
    replaced = {id.lower() for id in _extension}
    return {id: entry for id, entry in built_in().items() if id.lower() not in replaced} | _extension


def ids() -> list[str]:
    """The hub ids of all models in the catalogue."""
    return list(_entries())


def resolved(id: str, entries: Mapping[str, dict[str, Any]] | None = None) -> dict[str, Any]:
    """The entry of an id of `ids`, with what it takes from its base: of a built-in entry the built-in base.

    `entries`: those to look in, where these are not all.
    """
    entries = _entries() if entries is None else entries
    entry = entries[id]
    if "same_as" not in entry:
        return entry
    shipped = entry is built_in().get(id)
    bases = built_in() if shipped else {**built_in(), **entries}
    base = {name: value for name, value in resolved(entry["same_as"], bases).items() if name not in _OF_ONE}
    return {**base, **entry, "config": {**base["config"], **entry.get("changes", {})}}


def nearest(id: str) -> list[str]:
    """At most three ids of the catalogue that resemble `id`, the nearest first."""
    lowered = {known.lower(): known for known in ids()}
    return [lowered[name] for name in difflib.get_close_matches(id.lower(), lowered, n=3, cutoff=0.6)]


def trusted_commit(id: str, source: str) -> str | None:
    """The commit of `id` on the hub `source` whose Python code may run; None where the catalogue has none."""
    entry = {name.lower(): entry for name, entry in built_in().items()}.get(id.lower(), {})
    listed: dict[str, str] = entry.get("remote_code", {}).get("commits", {})
    return listed.get(source)


def publisher(id: str) -> str:
    """The organisation that published the model of which `id` is a copy; that of `id` where none is known."""
    entries = _entries()
    base = {known.lower(): known for known in entries}.get(id.lower(), id)
    while following := entries.get(base, {}).get("same_as"):
        base = following
    return base.partition("/")[0]


def released(id: str) -> str | None:
    """When the model was first published, `2025-07` or `2024`; None where it is not known."""
    entry = {name.lower(): entry for name, entry in _extension.items()}.get(id.lower(), {})
    return entry.get("released") or releases.find(id)


# What an entry does not take from its base.
_OF_ONE = ("remote_code", "chat_template")


@cache  # a plan that does not fit tries the whole catalogue
def lookup(id: str, *, revision: str | None = None, note: str | None = None) -> Checkpoint | None:
    """The catalogue's description of `id` (in any case of letters), or None where it has none."""
    known = {name.lower(): name for name in ids()}.get(id.lower())
    if known is None:
        return None
    entry = resolved(known)
    weights = entry["weights"]
    measured = Measured(**weights["measured"]) if "measured" in weights else None
    files = tuple(Shard(name=name, bytes=size) for name, size in weights.get("files", {}).items())
    described = from_config(
        entry["config"],
        id=id,
        revision=revision,
        weights=WeightFiles(weights.get("total_bytes", 0), files, measured=measured),
        source="catalogue",
        where=f"catalogue entry {id}",
        note=note,
        quantization_config=entry.get("hf_quant_config"),
        sentence_transformers=entry.get("sentence_transformers", False),
        chat_template=entry.get("chat_template"),
    )
    if measured is None:
        return described.model_copy(update=_sizes(described, weights))
    if files:
        return described
    return described.model_copy(update={"shards": _shards(weights, described.total_bytes)})


def _sizes(described: Checkpoint, weights: dict[str, Any]) -> dict[str, Any]:
    """Sizes that no header was read for: the published ones, and else what the dimensions give."""
    computed, published = _computed(described, weights), weights.get("parameters", {})
    by_dtype = {name: count * DTYPE_BITS[name] // 8 for name, count in published.items()} or computed.by_dtype
    total = described.total_bytes or sum(by_dtype.values())
    return {
        "total_bytes": total,
        "bytes_by_dtype": by_dtype,
        "bytes_by_part": computed.by_part,
        "bf16_bytes_by_part": computed.bf16_by_part,
        # Qwen3-Next has a draft layer and no key for it.
        "nextn_layers": described.nextn_layers or int(Part.NEXTN.value in computed.by_part),
        "shards": _shards(weights, total),
    }


def _shards(weights: dict[str, Any], total: int) -> tuple[Shard, ...]:
    """The weight files; where the entry does not list them, as many as transformers makes by default."""
    count = weights.get("shards", -(-total // _SHARD_BYTES))
    name = weights.get("shard_name", f"model-{{:05d}}-of-{count:05d}.safetensors")
    return tuple(Shard(name=name.format(number), bytes=None) for number in range(1, count + 1))


def _computed(described: Checkpoint, weights: dict[str, Any]) -> Measured:
    """The sums, tensor by tensor."""
    by_part: Counter[str] = Counter()
    by_dtype: Counter[str] = Counter()
    bf16: Counter[str] = Counter()
    if stored := weights.get("stored"):
        for part, sizes in stored.items():
            by_part[part] += sum(sizes.values())
            by_dtype.update(sizes)
        converted = weights.get("bf16", {}) if described.convertible else {}
        return Measured(dict(by_dtype), dict(by_part), converted)
    for tensor in parameters.tensors(described) or []:
        quantized = tensor.part.value not in weights.get("plain_parts", ())
        stored = parameters.stored_bytes(described, tensor, quantized=quantized)
        by_part[tensor.part.value] += sum(stored.values())
        by_dtype.update(stored)
        bf16[tensor.part.value] += tensor.plain_bytes if described.convertible else 0
    if weights.get("tied_head_stored"):
        size = 2 * described.vocab_size * described.hidden_size
        by_part[Part.HEAD.value] += size
        by_dtype["BF16"] += size
        bf16[Part.HEAD.value] += size if described.convertible else 0
    return Measured(dict(by_dtype), dict(by_part), dict(+bf16))
