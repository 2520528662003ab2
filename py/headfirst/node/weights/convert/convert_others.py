"""What is no shard of a converted checkpoint: config, index, tokenizer, code."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from headfirst.common.checkpoint_files import is_checkpoint_file
from headfirst.common.convertible import stripped_config
from headfirst.common.safetensors_file import read_shard
from headfirst.node.weights.files import contained, list_files, open_contained, write_whole
from headfirst.node.weights.progress import WeightsProgress
from headfirst.node.weights.proof import manifest as manifests
from headfirst.node.weights.proof.checkpoint_check import CONFIG, INDEX, read_json
from headfirst.node.weights.proof.manifest import MANIFEST, Manifest


def complete(
    source: Path,
    target: Path,
    shards: Collection[str],
    origin: Mapping[str, str],
    progress: WeightsProgress | None = None,
) -> tuple[Manifest, bool]:
    """Bring what is no shard to `target`, which has its `shards`; its manifest, and whether that is new."""
    _copy_others(source, target, shards)
    names = [name for name in list_files(target) if name != MANIFEST]
    manifest = manifests.build(target, names, origin, progress)
    return manifest, manifests.save(target, manifest)  # it was discarded where anything was written


def _copy_others(source: Path, target: Path, shards: Collection[str]) -> None:
    """Bring everything but the shards from `source` to `target`, where `shards` (names) are all converted.

    The config loses its quantization_config, the index names what is there now. Files are written where they
    differ, and what the source no longer has goes; the target's manifest goes before anything is changed.
    """
    others = [name for name in list_files(source) if not is_shard(name) and is_checkpoint_file(name)]
    written = {CONFIG: _json(stripped_config(read_json(source / CONFIG)))}
    if INDEX in others:
        written[INDEX] = _index(target, shards)
    stale = set(list_files(target)) - set(others) - set(shards) - {MANIFEST}
    fresh = [name for name in others if not _same(target / name, written.get(name), contained(source, name))]
    if stale or fresh:
        manifests.discard(target)
    for name in fresh:
        if name not in written:
            with open_contained(source, name) as original:
                written[name] = original.read()
        write_whole(target / name, written[name])
    for name in stale:
        (target / name).unlink()


def _same(copy: Path, content: bytes | None, original: Path) -> bool:
    return copy.is_file() and copy.read_bytes() == (original.read_bytes() if content is None else content)


def is_shard(name: str) -> bool:
    """Whether a file of a checkpoint has weights."""
    return "/" not in name and name.endswith(".safetensors")


def _index(target: Path, shards: Collection[str]) -> bytes:
    """The index of the result; `total_size` is the bytes of all tensors, without the headers."""
    tensors = {
        tensor.name: (shard, tensor.end - tensor.start)
        for shard in shards
        for tensor in read_shard(target / shard).tensors.values()
    }
    document = {
        "metadata": {"total_size": sum(size for _shard, size in tensors.values())},
        "weight_map": {name: shard for name, (shard, _size) in sorted(tensors.items())},
    }
    return _json(document)


def _json(document: dict[str, Any]) -> bytes:
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()
