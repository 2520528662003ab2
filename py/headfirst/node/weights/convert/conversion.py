"""A checkpoint that is converted while it still arrives: what can be done when, and what is done already.

What a shard was made from is known by the hashes of the transfer, so it also holds once that is gone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event, Lock

from headfirst.common.convertible import Format
from headfirst.common.errors import InputError, NotReadyError
from headfirst.common.safetensors_file import read_shard
from headfirst.node.weights.convert.convert_others import complete, is_shard
from headfirst.node.weights.convert.convert_shard import convert_shard
from headfirst.node.weights.convert.finished import ConvertedShards
from headfirst.node.weights.convert.recipe import format_of, make_recipe, outputs, scale_homes
from headfirst.node.weights.files import SHARDS_IN_FLIGHT, bf16_missing, claim, require_space
from headfirst.node.weights.proof import manifest as manifests
from headfirst.node.weights.proof.checkpoint_check import CONFIG, INDEX, read_index
from headfirst.node.weights.proof.hash_cache import HashCache
from headfirst.node.weights.proof.manifest import Manifest

_AT_ONCE = min(SHARDS_IN_FLIGHT, os.cpu_count() or 1)


class Conversion:
    """Makes the BF16 form of the folder `source`, which fills, in `target`. Shards are called by file name.

    Threads of its own convert each shard as soon as it and the shards of its scales are there. Raises
    InputError where the folders are the same, and what `files.claim` raises.
    """

    def __init__(self, source: Path, target: Path) -> None:
        if target.resolve() == source.resolve():
            raise InputError("source and target are the same folder", where=str(target))
        self.target = target
        self.planned = False
        self.outputs: frozenset[str] = frozenset()
        """The shards that the target will have."""
        self.done: set[str] = set()
        """The shards of the target that are whole."""
        self._source = source
        self._needs: Mapping[str, frozenset[str]] = {}
        self._tensors: Mapping[str, AbstractSet[str]] = {}
        self._form: Format
        claim(target)
        self._finished = ConvertedShards(target, HashCache(target))
        self._pool = ThreadPoolExecutor(_AT_ONCE, "convert")
        self._running: dict[Future[None], str] = {}
        self._stopped = Event()
        self._lock = Lock()
        self._read: dict[str, int] = {}

    def plan(
        self,
        sizes: Mapping[str, int],
        here: AbstractSet[str],
        serves: Callable[[str], bool] = lambda _shard: True,
    ) -> bool:
        """Decide what is to be done, as soon as that can be known; returns whether it is.

        `sizes` are bytes by name of all files of the source, `here` the names of those that have arrived,
        `serves` returns whether a shard is to be converted here.
        InputError, naming the tensor, for what is not understood; NotReadyError where the disk is too small.
        """
        shards = set(filter(is_shard, sizes))
        first = {CONFIG, INDEX} if INDEX in sizes else {CONFIG, *shards}
        if not self.planned and sizes and first <= here:
            form = format_of(self._source)
            served = {name: size for name, size in sizes.items() if serves(name)}
            missing = bf16_missing(served, self.target, form.scheme.growth)
            require_space(self.target, missing, "convert to BF16")
            weight_map = read_index(self._source) or {
                tensor: shard for shard in shards for tensor in read_shard(self._source / shard).tensors
            }
            self._form, self._needs = form, scale_homes(weight_map, form)
            self.outputs = frozenset(filter(serves, outputs(weight_map, form)))
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
        return all(inputs.values()) and self._finished.holds(shard, inputs, self._form)

    def begin_anew(self) -> None:
        """Discard the plan: the source's files may be others now."""
        self.planned = False
        self.done.clear()

    def step(self, here: AbstractSet[str], hashes: Mapping[str, str]) -> None:
        """Start what can be started; raises what a conversion raised. `hashes` are the xxh3 of the files."""
        for future in [future for future in self._running if future.done()]:
            name = self._running.pop(future)
            future.result()
            self.done.add(name)
            with self._lock:
                del self._read[name]
        for name in sorted((self.outputs & here) - self.done - set(self._running.values())):
            if self.is_done(name, hashes):
                self.done.add(name)
            elif len(self._running) < _AT_ONCE and self.needs(name) <= here:
                self._running[self._pool.submit(self._convert, name, hashes)] = name

    def bytes_converted(self, sizes: Mapping[str, int]) -> int:
        """Bytes of source files (`sizes` by name) that are converted, with what was read of those in work."""
        with self._lock:
            in_work = sum(self._read.values())
        return in_work + sum(sizes.get(name, 0) for name in self.done)

    def close(self) -> None:
        """End the conversions in work; they are begun again another time."""
        self._stopped.set()
        self._pool.shutdown(cancel_futures=True)

    def _convert(self, shard: str, hashes: Mapping[str, str]) -> None:
        def seen(count: int) -> None:
            with self._lock:
                self._read[shard] += count

        with self._lock:
            self._read[shard] = 0
        source, *others = (read_shard(self._source / name) for name in (shard, *sorted(self._needs[shard])))
        recipe = make_recipe(source, others, self._form)
        absent = sorted(self._tensors[shard] - source.tensors.keys())
        if recipe is None or absent:
            raise NotReadyError(
                f"the index names tensors that this shard does not hold: {', '.join(absent[:3])}",
                where=str(source.path),
                hint="The source is not complete: choose another revision, or another source.",
            )
        manifests.discard(self.target)
        converted = convert_shard(recipe, self.target / shard, seen=seen, stopped=self._stopped.is_set)
        self._finished.add(recipe, {name: hashes[name] for name in self.needs(shard)}, converted)

    def finish(self, source: Manifest, part: Mapping[str, str]) -> tuple[Manifest, bool]:
        """Complete the target with all that is no shard. Returns its manifest, and whether it is new.

        `source` is the whole checkpoint's; `part` goes into the origin where the target has a part of it.
        """
        origin = {**source.origin, "converted_from": source.digest, **part}
        return complete(self._source, self.target, self.outputs, origin)
