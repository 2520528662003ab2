"""A checkpoint folder, FP8 to BF16: shard by shard, resumable, complete only when it has its manifest."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from headfirst.errors import HeadfirstError, InputError
from headfirst.weights import manifest as manifests
from headfirst.weights.checkpoint_check import CONFIG, INDEX, check_checkpoint, read_json
from headfirst.weights.convert_shard import convert_shard, converted_layout
from headfirst.weights.files import STATE_FOLDER, claim, list_files, require_space, write_whole
from headfirst.weights.hash_cache import FileRecord, HashCache
from headfirst.weights.manifest import MANIFEST, Manifest
from headfirst.weights.progress import Progress
from headfirst.weights.recipe import ShardRecipe, block_size, make_recipes

_FORMAT = "1"
"""Raise it when the converter writes other bytes: finished shards of an older one are then made again."""


def convert(source: Path, target: Path, processes: int | None = None) -> tuple[Manifest, bool]:
    """Make `target` the BF16 form of the FP8 checkpoint `source`.

    Finished shards whose source is unchanged are kept. `processes` work in parallel (default: one per two
    cores), each with a few MiB of memory. Returns the manifest of `target` and whether anything was done.
    """
    shards = check_checkpoint(source)
    recipes = [
        recipe for recipe in make_recipes(shards, block_size(source)) if recipe.copied or recipe.scaled
    ]
    if target.resolve() == source.resolve():
        raise InputError("source and target are the same folder", where=str(target))
    claim(target)
    made_from = manifests.load(source)
    origin = {**made_from.origin, "converted_from": made_from.digest} if made_from else {}
    done = _Finished(target)
    todo = [recipe for recipe in recipes if not done.holds(recipe)]
    sizes = {recipe.source.path.name: converted_layout(recipe)[2] for recipe in recipes}
    if todo:
        manifests.discard(target)
        require_space(target, sum(sizes[recipe.source.path.name] for recipe in todo), "convert to BF16")
    with Progress("convert", sum(shard.size for shard in shards)) as progress:
        progress.add(sum(recipe.source.size for recipe in recipes if recipe not in todo))
        _convert_all(todo, target, done, progress, processes)
    _copy_others(source, target, sizes, recipes)
    with Progress("hash") as progress:
        names = [name for name in list_files(target) if name != MANIFEST]
        after = manifests.build(target, names, origin, progress)
    changed = manifests.load(target) != after  # it was discarded where anything was written
    if changed:
        manifests.save(target, after)
    return after, changed


def _convert_all(
    recipes: Sequence[ShardRecipe], target: Path, done: _Finished, progress: Progress, processes: int | None
) -> None:
    workers = min(processes or max(1, (os.cpu_count() or 2) // 2), len(recipes))
    if workers <= 1:
        for recipe in recipes:
            done.add(recipe, convert_shard(recipe, target / recipe.source.path.name))
            progress.add(recipe.source.size)
        return
    with ProcessPoolExecutor(workers) as pool:
        jobs = {
            pool.submit(convert_shard, recipe, target / recipe.source.path.name): recipe for recipe in recipes
        }
        try:
            for job in as_completed(jobs):
                done.add(jobs[job], job.result())
                progress.add(jobs[job].source.size)
        except BrokenProcessPool as error:
            raise HeadfirstError(
                "a conversion process was killed, probably for want of memory",
                where=str(target),
                hint="Run again; finished shards are kept.",
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


class _Finished:
    """Which shards of the target are done, and from which state of which files."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._file = target / STATE_FOLDER / "converted.json"
        self._hashes = HashCache(target)
        self._inputs: dict[str, object] = dict(read_json(self._file)) if self._file.is_file() else {}

    def holds(self, recipe: ShardRecipe) -> bool:
        name = recipe.source.path.name
        return self._inputs.get(name) == _fingerprint(recipe) and self._hashes.get(name) is not None

    def add(self, recipe: ShardRecipe, xxh3: str) -> None:
        name = recipe.source.path.name
        self._hashes.put(name, FileRecord(converted_layout(recipe)[2], xxh3))
        self._inputs[name] = _fingerprint(recipe)
        write_whole(self._file, json.dumps(self._inputs).encode())


def _fingerprint(recipe: ShardRecipe) -> str:
    stats = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in recipe.inputs]
    return hashlib.sha256(repr((_FORMAT, recipe.block, stats)).encode()).hexdigest()


def _copy_others(
    source: Path, target: Path, sizes: Mapping[str, int], recipes: Sequence[ShardRecipe]
) -> None:
    """Config, index, tokenizer, code: written where they differ; what the source no longer has goes."""
    wanted = {name: source / name for name in list_files(source) if not _is_shard(name) and name != MANIFEST}
    written = {CONFIG: _stripped_config(source / CONFIG)}
    if INDEX in wanted:
        written[INDEX] = _index(sizes, recipes)
    stale = set(list_files(target)) - set(wanted) - set(sizes) - {MANIFEST}
    fresh = [name for name in wanted if not _same(target / name, written.get(name), source / name)]
    if stale or fresh:
        manifests.discard(target)
    for name in fresh:
        write_whole(target / name, written[name] if name in written else wanted[name].read_bytes())
    for name in stale:
        (target / name).unlink()


def _same(copy: Path, content: bytes | None, original: Path) -> bool:
    return copy.is_file() and copy.read_bytes() == (original.read_bytes() if content is None else content)


def _is_shard(name: str) -> bool:
    return "/" not in name and name.endswith(".safetensors")


def _stripped_config(path: Path) -> bytes:
    config = read_json(path)
    config.pop("quantization_config", None)
    nested = config.get("text_config")
    if isinstance(nested, dict):
        nested.pop("quantization_config", None)
    return (json.dumps(config, indent=2, ensure_ascii=False) + "\n").encode()


def _index(sizes: Mapping[str, int], recipes: Sequence[ShardRecipe]) -> bytes:
    """The index of the result; `total_size` is the bytes of all tensors, without the headers."""
    layouts = {recipe.source.path.name: converted_layout(recipe) for recipe in recipes}
    weight_map = {tensor.name: shard for shard, (_, tensors, _) in layouts.items() for tensor in tensors}
    total = sum(sizes[shard] - len(header) for shard, (header, _, _) in layouts.items())
    document = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    return (json.dumps(document, indent=2) + "\n").encode()
