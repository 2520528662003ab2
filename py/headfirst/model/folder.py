"""Describe a checkpoint that lies in a folder on this machine, and find what is broken in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headfirst.errors import InputError, NotReadyError
from headfirst.model import safetensors
from headfirst.model.checkpoint import Checkpoint, Shard, from_config
from headfirst.model.safetensors import Header

INDEX = "model.safetensors.index.json"


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
    weight_map = _json(index, missing="").get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise InputError("The index has no weight_map.", where=str(index), hint="Fetch the file again.")
    names = sorted(set(weight_map.values()))
    missing = [name for name in names if not (folder / name).exists()]
    if missing:
        listed = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        raise NotReadyError(
            f"The index names {len(names)} shards, and {len(missing)} are missing: {listed}.",
            where=str(index),
            hint="The download is not complete: run it again, it continues where it stopped.",
        )
    return names


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
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path.name} is missing.", where=str(path.parent), hint=missing) from None
    except ValueError as error:
        raise InputError(f"It is not valid JSON: {error}.", where=str(path)) from None
    if not isinstance(content, dict):
        raise InputError("It holds no JSON object.", where=str(path))
    return content
