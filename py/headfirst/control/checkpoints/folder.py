"""Describe a checkpoint that is in a folder on this machine, and find what is broken in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import HUBS

from headfirst.common.errors import InputError, NotReadyError
from headfirst.common.safetensors_file import read_shard
from headfirst.common.untrusted import UntrustedError, file_listing, json_document, relative_path
from headfirst.control.checkpoints.chat_template import has_template
from headfirst.decide.model.checkpoint import Checkpoint, Shard
from headfirst.decide.model.config import WeightFiles, from_config

INDEX = "model.safetensors.index.json"
QUANTIZATION = "hf_quant_config.json"  # NVIDIA ModelOpt's, where config.json has no quantization_config
MODULES = "modules.json"  # sentence-transformers'
MAX_JSON_BYTES = 64 << 20  # an index names each tensor; those of the largest models have some 20 MB


def describe_folder(folder: Path, *, id: str | None = None, revision: str | None = None) -> Checkpoint:
    """Read config.json, the index and every shard's header (no tensor is read).

    InputError: no such folder, no config.json, no weights. NotReadyError: the index names a shard that is
    missing, or a shard is shorter than its header states.
    """
    if not folder.is_dir():
        raise InputError(
            f"The model folder {folder} does not exist.",
            hint="Give the path of a folder with config.json and *.safetensors, or a model id such as "
            f"deepseek-ai/DeepSeek-R1 with model_source={' or '.join(HUBS)}.",
        )
    config = read_json(folder / "config.json", missing="A model folder needs its config.json.")
    names = shard_names(folder)
    shards = [read_shard(folder / name) for name in names]
    quantization = folder / QUANTIZATION
    return from_config(
        config,
        id=id or str(folder),
        revision=revision,
        weights=WeightFiles(
            total_bytes=sum(shard.size for shard in shards),
            shards=tuple(Shard(name=shard.path.name, bytes=shard.size) for shard in shards),
            tensors=[list(shard.tensors.values()) for shard in shards],
        ),
        source="folder",
        where=str(folder / "config.json"),
        quantization_config=read_json(quantization, missing="") if quantization.is_file() else None,
        sentence_transformers=(folder / MODULES).is_file(),
        chat_template=has_template(
            config,
            [path.name for path in folder.iterdir()],
            lambda name: read_json(folder / name, missing=""),
        ),
    )


def shard_names(folder: Path) -> list[str]:
    """Names of the weight files: those of the index, or without one all *.safetensors."""
    index = folder / INDEX
    if not index.exists():
        names = sorted(path.name for path in folder.glob("*.safetensors"))
        if not names:
            raise InputError(
                f"The model folder {folder} has no weights (*.safetensors).",
                hint="If only the text of the repository was cloned, fetch the weights with `git lfs pull`, "
                "`modelscope download` or `hf download`. PyTorch .bin files must be converted first.",
            )
        return names
    names = index_names(read_json(index, missing=""), where=str(index))
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
    names: set[str] = set()
    for name in weight_map.values():
        if not (isinstance(name, str) and name in names):
            names.add(str(relative_path(name, what="the name of a weight file", where=where)))
    return sorted(file_listing(names, where=where))


def read_json(path: Path, *, missing: str) -> dict[str, Any]:
    """The JSON object in a file. InputError without one; `missing` is then the hint."""
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
