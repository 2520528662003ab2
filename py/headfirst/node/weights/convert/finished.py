"""Which shards of a converted folder are done, and from which state of which inputs."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path

from headfirst.common.convertible import Format
from headfirst.node.weights.convert.convert_shard import Converted
from headfirst.node.weights.convert.recipe import ShardRecipe
from headfirst.node.weights.files import STATE_FOLDER, write_whole
from headfirst.node.weights.proof.checkpoint_check import read_json
from headfirst.node.weights.proof.hash_cache import FileRecord, HashCache
from headfirst.node.weights.proof.manifest import check_names
from headfirst.node.weights.proof.samples import save_samples

_FORMAT = "2"
"""Raise it when the converter writes other bytes: finished shards of an older one are then made again."""


class ConvertedShards:
    """Kept in `.headfirst/converted.json`, so that it outlives the process. Safe to use from threads.

    `inputs`, everywhere: state by file name (any text that differs when the content does; "" where the file
    is gone) of the quantised shard and of the shards that hold its scales.
    """

    def __init__(self, target: Path, hashes: HashCache) -> None:
        self._target = target
        self._file = target / STATE_FOLDER / "converted.json"
        self._hashes = hashes
        self._lock = threading.Lock()
        document = read_json(self._file) if self._file.is_file() else {}
        self._shards: dict[str, object] = _mapping(document.get("shards"))
        self.dropped: dict[str, object] = _mapping(document.get("dropped"))
        """The shards of the source that are gone since their conversion."""
        self.origin: Mapping[str, str] = {k: str(v) for k, v in _mapping(document.get("origin")).items()}

    def inputs(self) -> Mapping[str, frozenset[str]]:
        """Names of the inputs of each shard that was ever finished."""
        where = str(self._file)
        inputs = {shard: _mapping(_mapping(entry).get("inputs")) for shard, entry in self._shards.items()}
        check_names(inputs, where)
        return {shard: frozenset(check_names(names, where)) for shard, names in inputs.items()}

    def holds(self, shard: str, inputs: Mapping[str, str], form: Format) -> bool:
        """Whether `shard` is there, unchanged since it was made from these inputs (those dropped count)."""
        entry = _mapping(self._shards.get(shard))
        before = _mapping(entry.get("inputs"))
        return (
            (entry.get("format"), entry.get("block")) == (_FORMAT, _made_as(form))
            and before.keys() == inputs.keys()
            and all(
                state == before[name] if state else name in self.dropped for name, state in inputs.items()
            )
            and self._hashes.get(shard) is not None
        )

    def add(self, recipe: ShardRecipe, inputs: Mapping[str, str], converted: Converted) -> None:
        """Remember a shard that was just converted, and its samples."""
        name = recipe.source.path.name
        save_samples(self._target, recipe, converted.samples)
        self._hashes.put(name, FileRecord(converted.size, converted.xxh3))
        with self._lock:
            self._shards[name] = {"format": _FORMAT, "block": _made_as(recipe.format), "inputs": dict(inputs)}
            self._save()

    def drop(self, shard: Path, origin: Mapping[str, str]) -> None:
        """Remove a source shard that nothing needs any more. `origin` is the manifest's, for a later run."""
        with self._lock:
            self.dropped[shard.name] = True
            self.origin = origin
            self._save()
        shard.unlink(missing_ok=True)

    def _save(self) -> None:
        document = {"shards": self._shards, "dropped": self.dropped, "origin": dict(self.origin)}
        write_whole(self._file, json.dumps(document).encode())


def _mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _made_as(form: Format) -> list[int] | str:
    """What of the format decides the result beside the inputs; of blocks their sizes, as in older records."""
    if form.layouts == ("block",) and form.block:
        return list(form.block)
    return f"{form.kernel} {' '.join(form.layouts)} {form.block}"
