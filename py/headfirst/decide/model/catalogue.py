"""Published models, kept as data (catalogue/ORGANISATION.json) for plans made without a network.

Each entry has its source, the keys of its config.json that a plan reads, and its weight files. What the
publisher states of the sizes is there (`total_bytes`, `parameters` by dtype); what is missing is computed
tensor by tensor from the dimensions, and `total_bytes_are` names which. Of architectures that parameters.py
does not know, tools/catalogue_sizes.py has written the sizes: `stored` (part -> dtype -> bytes) and, of
quantised models, `bf16` (part -> bytes in BF16). `same_as` names the entry whose
config an entry shares, but for its `changes`, and whose weight files it shares where it has none of its own.
`plain_parts` are parts of the model that its quantisation leaves as they are, `published_parameters` what
the publisher's page states and a test compares.
"""

from __future__ import annotations

import difflib
import json
from collections import Counter
from functools import cache
from importlib.resources import files
from typing import Any

from headfirst.common.safetensors_file import DTYPE_BITS
from headfirst.decide.model import parameters
from headfirst.decide.model.checkpoint import Checkpoint, Shard
from headfirst.decide.model.config import Weights, from_config
from headfirst.decide.model.measured import Part

_SHARD_BYTES = 5 * 10**9


@cache
def _entries() -> dict[str, dict[str, Any]]:
    entries: dict[str, dict[str, Any]] = {}
    for file in files("headfirst.decide.model").joinpath("catalogue").iterdir():
        entries.update(json.loads(file.read_text(encoding="utf-8")))
    return {id: entries[id] for id in sorted(entries, key=str.lower)}


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
    listed: dict[str, str] = _entry(known).get("remote_code", {}).get("commits", {}) if known else {}
    return listed.get(source)


def lookup(id: str, *, revision: str | None = None, note: str | None = None) -> Checkpoint | None:
    """The catalogue's description of `id` (in any case of letters), or None where it has none."""
    known = {name.lower(): name for name in ids()}.get(id.lower())
    if known is None:
        return None
    entry = _entry(known)
    weights = entry["weights"]
    described = from_config(
        entry["config"],
        id=id,
        revision=revision,
        weights=Weights(weights.get("total_bytes", 0), ()),
        source="catalogue",
        where=f"catalogue entry {id}",
        note=note,
        sentence_transformers=entry.get("sentence_transformers", False),
    )
    return described.model_copy(update=_sizes(described, weights))


def _entry(known: str) -> dict[str, Any]:
    entry = _entries()[known]
    if "same_as" not in entry:
        return entry
    base = {name: value for name, value in _entry(entry["same_as"]).items() if name != "remote_code"}
    return {**base, **entry, "config": {**base["config"], **entry.get("changes", {})}}


def _sizes(described: Checkpoint, weights: dict[str, Any]) -> dict[str, Any]:
    """Sizes that no header was read for: the published ones, and else what the dimensions give."""
    by_part, by_dtype, bf16_by_part = _computed(described, weights)
    published = weights.get("parameters", {})
    by_dtype = {name: count * DTYPE_BITS[name] // 8 for name, count in published.items()} or by_dtype
    total = described.total_bytes or sum(by_dtype.values())
    return {
        "total_bytes": total,
        "bytes_by_dtype": by_dtype,
        "bytes_by_part": by_part,
        "bf16_bytes_by_part": bf16_by_part,
        "shards": _shards(weights, total),
    }


def _shards(weights: dict[str, Any], total: int) -> tuple[Shard, ...]:
    """The weight files; where the entry does not list them, as many as transformers makes by default."""
    count = weights.get("shards", -(-total // _SHARD_BYTES))
    name = weights.get("shard_name", f"model-{{:05d}}-of-{count:05d}.safetensors")
    return tuple(Shard(name=name.format(number), bytes=None) for number in range(1, count + 1))


def _computed(
    described: Checkpoint, weights: dict[str, Any]
) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """Bytes by part, by dtype, and by part after a conversion, tensor by tensor."""
    by_part: Counter[str] = Counter()
    by_dtype: Counter[str] = Counter()
    bf16: Counter[str] = Counter()
    if stored := weights.get("stored"):
        for part, sizes in stored.items():
            by_part[part] += sum(sizes.values())
            by_dtype.update(sizes)
        return dict(by_part), dict(by_dtype), weights.get("bf16", {}) if described.convertible else {}
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
    return dict(by_part), dict(by_dtype), dict(+bf16)
