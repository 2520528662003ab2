"""Which files each member of a transfer needs, where members serve some of a model's layers, and the index.

With pipeline parallelism a rank loads the tensors of its own layers. Embedding, final norm, head and towers
are read by the first stage, the last one, or both (tied embeddings, drafts), by engine and model: every
member gets them. Engines read the shards that the index names and refuse one that names more than is there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path

from headfirst.common.errors import InputError
from headfirst.common.untrusted import shown
from headfirst.node.weights.convert.recipe import format_of, scale_homes
from headfirst.node.weights.proof.checkpoint_check import CONFIG, INDEX, read_index

# The layers of a language model: alone, or inside a model with vision or sound. Layers of towers, of drafts
# (mtp.layers.0) and of a talker beside the thinker have other names, and so belong to every member.
_LAYER = re.compile(r"((?:model|language_model\.model|model\.language_model)\.)?layers\.([0-9]{1,5})\.")
_RANGE = re.compile(r"([0-9]{1,5})-([0-9]{1,5})")
_FIRST = (CONFIG, INDEX)
Shards = Mapping[str, frozenset[int]]
"""The members that need each shard."""


def read_layers(text: str) -> range | None:
    """`0-30`, both included, as a range; "" is None: all layers. InputError for anything else."""
    if not text:
        return None
    match = _RANGE.fullmatch(text)
    if not match or int(match[1]) > int(match[2]):
        raise InputError(f"layers {shown(text)} are not written as in 0-30")
    return range(int(match[1]), int(match[2]) + 1)


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
    members = dict(needed)
    for shard, others in homes.items():
        for other in others:
            members[other] = members.get(other, frozenset()) | needed.get(shard, frozenset())
    return members


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
    matches = {name: match for name in weight_map if (match := _LAYER.match(name))}
    if len({match[1] for match in matches.values()}) > 1:
        return {}
    return {name: int(match[2]) for name, match in matches.items()}


def _members(ranges: Sequence[range | None], layer: int) -> frozenset[int]:
    return frozenset(at for at, span in enumerate(ranges) if span is None or layer in span)


@dataclass
class FileNeeds:
    """The files that the members of a transfer need, by name. All members compute the same from the index.

    `index`: this member, of `count`. `ranges`: the hidden layers that each member serves; empty: all members
    need all files. `layers`: the number of hidden layers. `converts`: a member also needs the shards that
    hold scales of its weights. `keeps_all`: the folder of this member is whole and stays so. Safe to use from
    threads.
    """

    index: int
    count: int
    ranges: Sequence[range | None] = ()
    layers: int = 0
    converts: bool = False
    keeps_all: bool = False
    _learned: tuple[Shards, Shards] | None = field(default=None, init=False)

    @property
    def divided(self) -> bool:
        """Whether some member may need less than everything."""
        return any(self.ranges)

    @property
    def known(self) -> bool:
        """Whether the needs of every file are known: the index was read, or all members need all files."""
        return not self.divided or self._learned is not None

    def learn(self, folder: Path, sizes: Mapping[str, int], here: AbstractSet[str]) -> None:
        """Read the index in `folder` once it is among the files `here`. `sizes`: bytes of all files.

        InputError where the layers do not fit the model, or it cannot be converted.
        """
        if self.known or not sizes or not {name for name in _FIRST if name in sizes} <= here:
            return
        weight_map = read_index(folder)
        if not self.converts:
            served = shards_by_member(weight_map, self.ranges, self.layers)
            self._learned = served, served
            return
        form = format_of(folder)
        weights = {name: shard for name, shard in weight_map.items() if form.weight_name(name) is None}
        served = shards_by_member(weights, self.ranges, self.layers)
        self._learned = served, with_scales(served, scale_homes(weight_map, form))

    def forget(self) -> None:
        """Discard what was read from the index: another overview may list other files."""
        self._learned = None

    def members(self, name: str) -> frozenset[int]:
        """The members that need a file; all of them until the index was read."""
        needed = self._learned[1] if self._learned else {}
        return needed.get(name) or frozenset(range(self.count))

    def is_needed(self, name: str) -> bool:
        """Whether this member needs a file."""
        return self.keeps_all or self.index in self.members(name)

    def serves(self, name: str) -> bool:
        """Whether this member serves a shard; False: it needs the shard for the scales of others only."""
        served = self._learned[0].get(name) if self._learned else None
        return served is None or self.index in served

    def is_decided(self, name: str) -> bool:
        """Whether `is_needed` is final for a file."""
        return self.known or name in _FIRST

    def needed(self, sizes: Mapping[str, int]) -> Mapping[str, int]:
        """Bytes of the files that this member needs, of the files `sizes`."""
        if not self.divided:
            return sizes
        return {name: size for name, size in sizes.items() if self.is_needed(name)}

    def layers_here(self, names: Iterable[str]) -> str:
        """The layers of this member as in `0-30`; "" where it needs all files `names`."""
        span = self.ranges[self.index] if self.divided else None
        if span is None or all(self.index in self.members(name) for name in names):
            return ""
        return f"{span.start}-{span.stop - 1}"
