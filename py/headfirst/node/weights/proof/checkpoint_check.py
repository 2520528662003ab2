"""Is this folder a checkpoint, and whole? Answered from headers and sizes, before anything is started."""

from __future__ import annotations

from pathlib import Path

from headfirst.common.errors import InputError, NotReadyError
from headfirst.common.safetensors_file import SafetensorsFile, read_shard
from headfirst.common.untrusted import UntrustedError, json_document, line
from headfirst.node.weights.proof.manifest import check_names

INDEX = "model.safetensors.index.json"
CONFIG = "config.json"
ADAPTER_CONFIG = "adapter_config.json"  # of a LoRA adapter, which has no CONFIG
_JSON_LIMIT = 256 << 20  # bytes; an index has about 100 for each tensor


def check_checkpoint(folder: Path) -> list[SafetensorsFile]:
    """Every shard of `folder`, sorted by name, headers read: those of the index, or all where it is absent.

    Raises InputError where the folder is no checkpoint (no such folder, no config.json, no safetensors), and
    NotReadyError where it is not whole (a shard or tensor of the index is missing, or a shard is truncated).
    """
    if not folder.is_dir():
        raise InputError(
            "no such model folder", where=str(folder), hint="Check the path; it is a path on the head."
        )
    hint = "Name the folder that has config.json (or adapter_config.json) and the *.safetensors files."
    if not any((folder / name).is_file() for name in (CONFIG, ADAPTER_CONFIG)):
        raise InputError(f"the model folder has no {CONFIG}", where=str(folder), hint=hint)
    index = read_index(folder)
    present = {path.name for path in folder.glob("*.safetensors")}
    if not present:
        raise InputError(
            "the model folder has no weights: no *.safetensors file in it", where=str(folder), hint=hint
        )
    files_of_index = set(index.values()) or present
    if missing := sorted(files_of_index - present):
        raise _incomplete(folder, f"{len(missing)} shard(s) that are not there: {', '.join(missing[:3])}")
    shards = [read_shard(folder / name) for name in sorted(files_of_index)]
    tensor_names = {name for shard in shards for name in shard.tensors}
    if absent := sorted(index.keys() - tensor_names):
        raise _incomplete(folder, f"{len(absent)} tensor(s) that no shard holds: {', '.join(absent[:3])}")
    return shards


def read_index(folder: Path) -> dict[str, str]:
    """Shard name by tensor name; empty where there is no index (a checkpoint of one file needs none)."""
    path = folder / INDEX
    if not path.is_file():
        return {}
    weight_map = read_json(path).get("weight_map")
    where = str(path)
    if not isinstance(weight_map, dict):
        raise NotReadyError("the index has no weight_map", where=where)
    if not all(isinstance(shard, str) for shard in weight_map.values()):
        raise NotReadyError("the weight_map has a value that is no file name", where=where)
    check_names(list(dict.fromkeys(weight_map.values())), where)
    return {line(name, what="a tensor name", where=where): shard for name, shard in weight_map.items()}


def read_json(path: Path) -> dict[str, object]:
    """A JSON object from `path`; NotReadyError where it is none."""
    try:
        with path.open("rb") as file:
            document = json_document(file.read(_JSON_LIMIT + 1), what="the file", limit=_JSON_LIMIT)
    except UntrustedError as error:
        raise NotReadyError(
            f"not valid JSON: {error.what}", where=str(path), hint="Fetch this file again."
        ) from error
    if not isinstance(document, dict):
        raise NotReadyError("not a JSON object", where=str(path), hint="Fetch this file again.")
    return document


def _incomplete(folder: Path, what: str) -> NotReadyError:
    return NotReadyError(
        f"{INDEX} names {what}", where=str(folder), hint="Complete the download, then run again."
    )
