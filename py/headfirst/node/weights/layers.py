"""Which shards a node needs that serves some of a model's layers, and the index of what is there then.

With pipeline parallelism a rank loads the tensors of its own layers. Embedding, final norm, head and towers
are read by the first stage, the last one, or both (tied embeddings, drafts), by engine and model: every
member gets them. Engines read the shards that the index names and refuse one that names more than is there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from headfirst.common.errors import InputError
from headfirst.common.untrusted import shown

# The layers of a language model: alone, or inside a model with vision or sound. Layers of towers, of drafts
# (mtp.layers.0) and of a talker beside the thinker have other names, and so belong to every member.
_LAYER = re.compile(r"((?:model|language_model\.model|model\.language_model)\.)?layers\.([0-9]{1,5})\.")
_RANGE = re.compile(r"([0-9]{1,5})-([0-9]{1,5})")


def read_layers(text: str) -> range | None:
    """`0-30`, both included, as a range; "" is None: all layers. InputError for anything else."""
    if not text:
        return None
    found = _RANGE.fullmatch(text)
    if not found or int(found[1]) > int(found[2]):
        raise InputError(f"layers {shown(text)} are not written as in 0-30")
    return range(int(found[1]), int(found[2]) + 1)


def shards_by_member(
    weight_map: Mapping[str, str], ranges: Sequence[range | None], layers: int
) -> dict[str, frozenset[int]]:
    """The members, by their place in `ranges`, that need each shard of the index `weight_map`.

    `ranges` are the hidden layers that each member serves, None for a member that needs everything; `layers`
    is the number of hidden layers. Layers after these are of multi-token prediction, which the last stage
    runs. A scale belongs to the layer of its weight. Every member needs every shard where the index does not
    name `layers` hidden layers. InputError where no member serves one of the layers.
    """
    everybody = frozenset(range(len(ranges)))
    if None not in ranges and (left := set(range(layers)).difference(*(span or () for span in ranges))):
        raise InputError(f"layer {min(left)} of {layers} is served by no node")
    homes = _layer_of(weight_map)
    if not set(range(layers)) <= set(homes.values()):
        return dict.fromkeys(weight_map.values(), everybody)
    needed: dict[str, frozenset[int]] = {}
    members = [_members(ranges, layer) for layer in range(layers)]
    for name, shard in weight_map.items():
        layer = homes.get(name)
        wanting = everybody if layer is None else members[min(layer, layers - 1)]
        needed[shard] = needed.get(shard, frozenset()) | wanting
    return needed


def with_scales(
    needed: Mapping[str, frozenset[int]], homes: Mapping[str, frozenset[str]]
) -> dict[str, frozenset[int]]:
    """The members that need each shard to convert it: `needed`, and the shards with scales of its weights.

    `needed` is of the weights alone, `homes` is recipe.scale_homes. What a member has for its scales only is
    not converted there.
    """
    wanted = dict(needed)
    for shard, others in homes.items():
        for other in others:
            wanted[other] = wanted.get(other, frozenset()) | needed.get(shard, frozenset())
    return wanted


def partial_index(
    weight_map: Mapping[str, str], present: Collection[str], sizes: Mapping[str, int]
) -> dict[str, object]:
    """The document of an index that names the tensors of the shards `present`, and nothing else.

    `sizes` are the bytes of the tensors of these shards; `total_size` is their sum.
    """
    here = {name: shard for name, shard in sorted(weight_map.items()) if shard in present}
    return {"metadata": {"total_size": sum(sizes.get(name, 0) for name in here)}, "weight_map": here}


def _layer_of(weight_map: Mapping[str, str]) -> dict[str, int]:
    """Layer by name, of the tensors of layers; empty where these have more than one model's names."""
    found = {name: match for name in weight_map if (match := _LAYER.match(name))}
    if len({match[1] for match in found.values()}) > 1:
        return {}
    return {name: int(match[2]) for name, match in found.items()}


def _members(ranges: Sequence[range | None], layer: int) -> frozenset[int]:
    return frozenset(at for at, span in enumerate(ranges) if span is None or layer in span)
