"""A checkpoint that is converted while it still arrives: what can be done when, and what is done already.

What a shard was made from is known by the hashes of the transfer, so it also holds once the FP8 is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path

from headfirst.errors import InputError, NotReadyError
from headfirst.weights import manifest as manifests
from headfirst.weights.checkpoint_check import CONFIG, INDEX, read_index
from headfirst.weights.convert_others import copy_others
from headfirst.weights.convert_shard import convert_shard
from headfirst.weights.files import claim, list_files
from headfirst.weights.finished import Finished
from headfirst.weights.hash_cache import HashCache
from headfirst.weights.manifest import MANIFEST, Manifest
from headfirst.weights.recipe import SCALE_SUFFIX, block_size, make_recipe, scale_homes
from headfirst.weights.safetensors_io import read_shard


class Conversion:
    """From the folder `source`, which fills, to `target`. Shards are called by their file names."""

    def __init__(self, source: Path, target: Path) -> None:
        if target.resolve() == source.resolve():
            raise InputError("source and target are the same folder", where=str(target))
        self.target = target
        self.planned = False
        self.outputs: frozenset[str] = frozenset()
        """The shards that the target will have."""
        self._source = source
        self._needs: Mapping[str, frozenset[str]] = {}
        self._tensors: Mapping[str, AbstractSet[str]] = {}
        self._block = (0, 0)
        claim(target)
        self._finished = Finished(target, HashCache(target))

    def plan(self, names: Collection[str], here: AbstractSet[str]) -> bool:
        """Decide what is to be done, as soon as that can be known; returns whether it is.

        `names` are all files of the source, `here` those that have arrived. InputError, naming the tensor,
        for what is not understood.
        """
        shards = {name for name in names if "/" not in name and name.endswith(".safetensors")}
        first = {CONFIG, INDEX} if INDEX in names else {CONFIG, *shards}
        if not self.planned and names and first <= here:
            self._block = block_size(self._source)
            weight_map = read_index(self._source) or {
                tensor: shard for shard in shards for tensor in read_shard(self._source / shard).tensors
            }
            self._needs = scale_homes(weight_map)
            self.outputs = frozenset(
                shard for tensor, shard in weight_map.items() if not tensor.endswith(SCALE_SUFFIX)
            )
            self._tensors = {
                shard: {tensor for tensor, home in weight_map.items() if home == shard}
                for shard in self.outputs
            }
            self.planned = True
        return self.planned

    def needs(self, shard: str) -> frozenset[str]:
        """The shard itself and those that hold its scales."""
        return self._needs[shard] | {shard}

    def users(self, shard: str) -> frozenset[str]:
        """The shards of the target that are made from `shard`."""
        return frozenset(output for output in self.outputs if shard in self.needs(output))

    def is_done(self, shard: str, hashes: Mapping[str, str]) -> bool:
        """Whether `shard` is in the target, made from the files with these xxh3 (by name; unknown: no)."""
        inputs = {name: hashes.get(name, "") for name in self.needs(shard)}
        return all(inputs.values()) and self._finished.holds(shard, inputs, self._block)

    def convert(
        self,
        shard: str,
        hashes: Mapping[str, str],
        seen: Callable[[int], object],
        stopped: Callable[[], bool],
    ) -> None:
        """Convert one shard; those it needs must be there. Several may run at once."""
        source, *others = (read_shard(self._source / name) for name in (shard, *sorted(self._needs[shard])))
        recipe = make_recipe(source, others, self._block)
        absent = sorted(self._tensors[shard] - source.tensors.keys())
        if recipe is None or absent:
            raise NotReadyError(
                f"the index names tensors that this shard does not hold: {', '.join(absent[:3])}",
                where=str(source.path),
                hint="The source is not whole: name another revision, or fetch it elsewhere.",
            )
        manifests.discard(self.target)
        converted = convert_shard(recipe, self.target / shard, seen=seen, stopped=stopped)
        self._finished.add(recipe, {name: hashes[name] for name in self.needs(shard)}, converted)

    def finish(self, source: Manifest) -> tuple[Manifest, bool]:
        """Complete the target with all that is no shard. Returns its manifest, and whether it is new."""
        copy_others(self._source, self.target, self.outputs)
        before = manifests.load(self.target)
        names = [name for name in list_files(self.target) if name != MANIFEST]
        origin = {**source.origin, "converted_from": source.digest}
        after = manifests.build(self.target, names, origin)
        if after != before:
            manifests.save(self.target, after)
        return after, after != before
