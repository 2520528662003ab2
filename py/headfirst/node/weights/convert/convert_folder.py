"""A checkpoint folder to BF16: shard by shard, resumable, complete only when it has its manifest."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from headfirst.common.convertible import Format
from headfirst.common.errors import InputError, NotReadyError
from headfirst.common.safetensors_file import read_shard
from headfirst.node.weights.convert.convert_others import complete
from headfirst.node.weights.convert.convert_shard import Converted, convert_shard, converted_size
from headfirst.node.weights.convert.finished import ConvertedShards
from headfirst.node.weights.convert.recipe import (
    ShardRecipe,
    format_of,
    make_recipe,
    outputs,
    scale_homes,
)
from headfirst.node.weights.files import claim, require_space
from headfirst.node.weights.progress import WeightsProgress
from headfirst.node.weights.proof import manifest as manifests
from headfirst.node.weights.proof.checkpoint_check import check_checkpoint, read_index
from headfirst.node.weights.proof.hash_cache import HashCache
from headfirst.node.weights.proof.manifest import Manifest
from headfirst.node.weights.proof.samples import file_state

MOST_THREADS = 64
"""So that memory stays below 512 MiB on any machine: each thread holds 3 to 5 MiB."""


@dataclass(frozen=True)
class _Plan:
    """`homes`: the other shards each shard needs; `outputs`: the shards that have more than scales."""

    homes: Mapping[str, frozenset[str]]
    outputs: Sequence[str]

    def inputs(self, source: Path, shard: str) -> dict[str, str]:
        """State by name of the files that `shard` is made from."""
        return {name: file_state(source / name) for name in sorted({shard, *self.homes[shard]})}


def convert(
    source: Path, target: Path, threads: int | None = None, *, keep_source: bool = True
) -> tuple[Manifest, bool]:
    """Make `target` the BF16 form of the quantised checkpoint `source`.

    Finished shards whose source is unchanged are kept. `threads` convert one shard each at a time (default:
    one per core). Without `keep_source` each source shard is removed when it, and every shard that needs its
    scales, is converted. Returns the manifest of `target` and whether anything was done.
    """
    if target.resolve() == source.resolve():
        raise InputError("source and target are the same folder", where=str(target))
    hashes = HashCache(target)
    done = ConvertedShards(target, hashes)
    form = format_of(source)
    plan = _plan(source, done, form)
    todo = [name for name in plan.outputs if not done.holds(name, plan.inputs(source, name), form)]
    recipes = _recipes(source, plan, todo, form)
    claim(target)
    made_from = manifests.load(source)
    origin = {**made_from.origin, "converted_from": made_from.digest} if made_from else done.origin
    workers = max(1, min(threads or len(os.sched_getaffinity(0)), len(recipes), MOST_THREADS))
    if recipes:
        manifests.discard(target)
        require_space(target, _space(source, target, recipes, workers, keep_source), "convert to BF16")
    release = _Release(source, plan, done, origin, set(todo)) if not keep_source else None
    with WeightsProgress("convert", sum(recipe.source.size for recipe in recipes)) as progress:
        _convert_all(recipes, target, workers, progress.add, done, plan, release)
    with WeightsProgress("hash") as progress:
        return complete(source, target, plan.outputs, origin, progress)


def _plan(source: Path, done: ConvertedShards, form: Format) -> _Plan:
    """From the headers of all shards; where some were dropped, from the index."""
    if not done.dropped:
        weight_map = {name: shard.path.name for shard in check_checkpoint(source) for name in shard.tensors}
    elif not (weight_map := read_index(source)):  # one file, dropped
        return _Plan(
            {shard: names - {shard} for shard, names in done.inputs().items()}, sorted(done.inputs())
        )
    return _Plan(scale_homes(weight_map, form), sorted(outputs(weight_map, form)))


def _recipes(source: Path, plan: _Plan, todo: Sequence[str], form: Format) -> list[ShardRecipe]:
    needed = sorted({*todo, *(home for name in todo for home in plan.homes[name])})
    if gone := [name for name in needed if not (source / name).is_file()]:
        raise NotReadyError(
            f"{len(gone)} source shard(s) must be converted again and are gone: {', '.join(gone[:3])}",
            where=str(source),
            hint="Fetch the checkpoint again, then convert.",
        )
    shards = {name: read_shard(source / name) for name in needed}
    folder_recipes = (
        make_recipe(shards[name], [shards[home] for home in sorted(plan.homes[name])], form) for name in todo
    )
    recipes = [recipe for recipe in folder_recipes if recipe]
    if recipes and len(todo) == len(plan.outputs) and not any(recipe.scaled for recipe in recipes):
        raise InputError(
            "there is no quantised tensor to convert",
            where=str(source),
            hint="Serve it as it is, without conversion.",
        )
    return recipes


def _space(
    source: Path, target: Path, recipes: Sequence[ShardRecipe], workers: int, keep_source: bool
) -> int:
    """Bytes that the target's disk must have free."""
    written = sum(converted_size(recipe) for recipe in recipes)
    existing = next(folder for folder in (target, *target.parents) if folder.exists())
    if keep_source or source.stat().st_dev != existing.stat().st_dev:
        return written
    sizes = sorted(recipe.source.size for recipe in recipes)
    return max(0, written - sum(sizes[: -workers or None]))  # the last ones are there until they are done


class _Release:
    """Removes source shards as soon as nothing needs them."""

    def __init__(
        self,
        source: Path,
        plan: _Plan,
        done: ConvertedShards,
        origin: Mapping[str, str],
        open_shards: set[str],
    ) -> None:
        self._source, self._plan, self._done, self._origin = source, plan, done, origin
        self._open = open_shards
        self._left = set(plan.homes)
        self.sweep()

    def sweep(self, finished: str | None = None) -> None:
        """Take note that a shard is finished, and remove what can go."""
        self._open.discard(finished or "")
        needed = self._open.union(*(self._plan.homes[shard] for shard in self._open))
        for name in sorted(self._left - needed):
            self._left.discard(name)
            if (self._source / name).is_file():
                manifests.discard(self._source)
                self._done.drop(self._source / name, self._origin)


def _convert_all(
    recipes: Sequence[ShardRecipe],
    target: Path,
    workers: int,
    seen: Callable[[int], object],
    done: ConvertedShards,
    plan: _Plan,
    release: _Release | None,
) -> None:
    stop = threading.Event()

    def work(recipe: ShardRecipe) -> tuple[Mapping[str, str], Converted]:
        inputs = plan.inputs(recipe.source.path.parent, recipe.source.path.name)
        shard = target / recipe.source.path.name
        return inputs, convert_shard(recipe, shard, seen=seen, stopped=stop.is_set)

    with ThreadPoolExecutor(workers, "convert") as pool:
        jobs = {pool.submit(work, recipe): recipe for recipe in recipes}
        try:
            for job in as_completed(jobs):
                done.add(jobs[job], *job.result())
                if release:
                    release.sweep(jobs[job].source.path.name)
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)
