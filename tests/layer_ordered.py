"""The demo checkpoint with one shard a layer, in their order: embedding first, norm and head last."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from headfirst.common.safetensors_file import StoredTensor, read_shard
from headfirst.control.demo import checkpoint_dir
from headfirst.node.weights.proof.checkpoint_check import INDEX

LAYERS = 6
_LAYER = re.compile(r"model\.layers\.([0-9]+)\.")


def shard_name(number: int) -> str:
    """0 has the embedding, `LAYERS + 1` norm and head, those between one layer each."""
    return f"model-{number + 1:05}-of-{LAYERS + 2:06}.safetensors"


def write_layer_ordered(folder: Path) -> None:
    """Write it into `folder`, which is made."""
    source = checkpoint_dir()
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("*.safetensors", INDEX))
    shards: dict[str, list[tuple[Path, StoredTensor]]] = {
        shard_name(number): [] for number in range(LAYERS + 2)
    }
    for path in sorted(source.glob("*.safetensors")):
        for tensor in read_shard(path).tensors.values():
            layer = _LAYER.match(tensor.name)
            place = 0 if "embed_tokens" in tensor.name else LAYERS + 1
            shards[shard_name(int(layer[1]) + 1 if layer else place)].append((path, tensor))
    for name, tensors in shards.items():
        _write(folder / name, tensors)
    index = {tensor.name: name for name, tensors in shards.items() for _, tensor in tensors}
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": index}))


def _write(path: Path, tensors: list[tuple[Path, StoredTensor]]) -> None:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    data = bytearray()
    for source, tensor in tensors:
        start = len(data)
        data += source.read_bytes()[tensor.start : tensor.end]
        header[tensor.name] = {
            "dtype": tensor.dtype,
            "shape": tensor.shape,
            "data_offsets": [start, len(data)],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
