"""Which members need which files, where each serves some of the model's layers. The same on all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path

from headfirst.node.weights.convert.recipe import format_of, scale_homes
from headfirst.node.weights.layers import shards_by_member, with_scales
from headfirst.node.weights.proof.checkpoint_check import CONFIG, INDEX, read_index

_FIRST = (CONFIG, INDEX)
Shards = Mapping[str, frozenset[int]]


@dataclass
class Needs:
    """For member `index` of `count`. `ranges` are the hidden layers of each member, empty where all need all.

    `layers` is the number of hidden layers. With `converts` a member also needs the shards with scales of
    its weights. `keeps_all`: this member's folder is whole and stays so. Safe to use from threads.
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
        """Whether the index was read, where that matters."""
        return not self.divided or self._learned is not None

    def learn(self, folder: Path, sizes: Mapping[str, int], here: AbstractSet[str]) -> None:
        """Read the index in `folder` once it is among the files `here`; `sizes` names all files.

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
        """The files may be others now."""
        self._learned = None

    def members(self, name: str) -> frozenset[int]:
        """The members that must receive a file: everybody, as long as the index is not here."""
        needed = self._learned[1] if self._learned else {}
        return needed.get(name) or frozenset(range(self.count))

    def here(self, name: str) -> bool:
        """Whether this member needs a file."""
        return self.keeps_all or self.index in self.members(name)

    def serves(self, name: str) -> bool:
        """Whether this member serves a shard, or has it for the scales of others only."""
        served = self._learned[0].get(name) if self._learned else None
        return served is None or self.index in served

    def can_come(self, name: str) -> bool:
        """Whether it is decided if this member needs a file."""
        return self.known or name in _FIRST

    def own(self, sizes: Mapping[str, int]) -> Mapping[str, int]:
        """Those of the files `sizes` that this member needs."""
        if not self.divided:
            return sizes
        return {name: size for name, size in sizes.items() if self.here(name)}

    def layers_here(self, names: Iterable[str]) -> str:
        """The layers of this member as in `0-30`; "" where it needs all files `names`."""
        span = self.ranges[self.index] if self.divided else None
        if span is None or all(self.index in self.members(name) for name in names):
            return ""
        return f"{span.start}-{span.stop - 1}"
