"""Describe a checkpoint that lies in a folder on this machine, and find what is broken in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headfirst.errors import InputError, NotReadyError
from headfirst.model import safetensors
from headfirst.model.checkpoint import Checkpoint, Shard, from_config
from headfirst.model.safetensors import Header
from headfirst.untrusted import UntrustedError, file_listing, json_document, relative_path

INDEX = "model.safetensors.index.json"
MAX_JSON_BYTES = 64 << 20  # an index names each tensor; those of the largest models have some 20 MB


def describe_folder(folder: Path, *, id: str | None = None, revision: str | None = None) -> Checkpoint:
    """Read config.json, the index and every shard's header (no tensor is read).

    InputError: no such folder, no config.json, no weights. NotReadyError: the index names a shard that is
    missing, or a shard is shorter than its header says.
    """
    if not folder.is_dir():
        raise InputError(
            f"The model folder {folder} does not exist.",
            hint="Give the path of a folder with config.json and *.safetensors, or a model id such as "
            "deepseek-ai/DeepSeek-R1 with model_source=modelscope or huggingface.",
        )
    config = _json(folder / "config.json", missing="A model folder needs its config.json.")
    names = shard_names(folder)
    headers = [read_header(folder / name) for name in names]
    sizes, scales = safetensors.total(headers)
    shards = tuple(Shard(name=name, bytes=(folder / name).stat().st_size) for name in names)
    return from_config(
        config,
        id=id or str(folder),
        revision=revision,
        total_bytes=sum(shard.bytes or 0 for shard in shards),
        bytes_by_dtype=sizes,
        scale_bytes=scales,
        shards=shards,
        source="folder",
        where=str(folder / "config.json"),
    )


def shard_names(folder: Path) -> list[str]:
    """Names of the weight files: those of the index, or without one all *.safetensors."""
    index = folder / INDEX
    if not index.exists():
        names = sorted(path.name for path in folder.glob("*.safetensors"))
        if not names:
            raise InputError(
                f"The model folder {folder} has no weights (*.safetensors).",
                hint="Was only the repository's text cloned? Fetch the weights with `git lfs pull`, "
                "`modelscope download` or `hf download`. PyTorch .bin files must be converted first.",
            )
        return names
    names = index_names(_json(index, missing=""), where=str(index))
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        listed = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        raise NotReadyError(
            f"The index names {len(names)} shards, and {len(missing)} are missing: {listed}.",
            where=str(index),
            hint="The download is not complete: run it again, it continues where it stopped.",
        )
    return names


def index_names(index: dict[str, Any], *, where: str) -> list[str]:
    """Names of the weight files in an index, sorted; UntrustedError for a name that leaves the folder."""
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise InputError("The index has no weight_map.", where=where, hint="Fetch the file again.")
    for name in weight_map.values():
        relative_path(name, what="the name of a weight file", where=where)
    return sorted(file_listing(set(weight_map.values()), where=where))


def read_header(path: Path) -> Header:
    """A shard's header; NotReadyError when the file is shorter or longer than its header says."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = safetensors.header_length(file.read(safetensors.PREFIX_BYTES), where=str(path))
        header = safetensors.parse(file.read(length), where=str(path))
    if size != header.file_bytes:
        kind = "truncated" if size < header.file_bytes else "longer than it should be"
        raise NotReadyError(
            f"The shard is {kind}: it has {size:,} bytes and its header says {header.file_bytes:,}.",
            where=str(path),
            hint="Delete this file and fetch it again.",
        )
    return header


def _json(path: Path, *, missing: str) -> dict[str, Any]:
    if not path.is_file():
        raise InputError(f"{path.name} is missing.", where=str(path.parent), hint=missing)
    with path.open("rb") as file:
        data = file.read(MAX_JSON_BYTES + 1)
    try:
        content = json_document(data, what=path.name, limit=MAX_JSON_BYTES)
    except UntrustedError as error:
        raise InputError(f"It is not valid JSON: {error.what}.", where=str(path)) from None
    if not isinstance(content, dict):
        raise InputError("It holds no JSON object.", where=str(path))
    return content
