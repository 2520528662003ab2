"""What a model has beside its weights: config, tokenizer, templates, Python files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from headfirst.common.checkpoint_files import is_checkpoint_file
from headfirst.common.convertible import stripped_config
from headfirst.common.errors import NotReadyError
from headfirst.control.checkpoints.hub import hub_files
from headfirst.control.checkpoints.hub_requests import Hub

Files = Mapping[str, Mapping[str, bytes]]
"""Names and contents of models' small files, by the folder in which the ranks have them."""
CONFIG = "config.json"
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".onnx", ".h5", ".msgpack", ".npz")
_MAX_BYTES = 96 << 20  # of all files; tokenizers of some models have 30 MB


def of_folder(folder: Path) -> dict[str, bytes]:
    """Those of a folder of this machine, by their names in it."""
    sizes = {
        str(path.relative_to(folder)): path.stat().st_size
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    return {name: (folder / name).read_bytes() for name in _chosen(sizes, where=str(folder))}


def of_hub(
    source: str, id: str, revision: str | None, *, environment: Mapping[str, str] = os.environ
) -> dict[str, bytes]:
    """Those of a repository of a hub. Raises as read_hub does."""
    hub = Hub.of(source, environment)
    choose = partial(_chosen, where=f"{hub.name}/{id}")
    return hub_files(hub, id, choose, limit=_MAX_BYTES, revision=revision)


def converted(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files as they are after the conversion to BF16."""
    config = json.dumps(stripped_config(json.loads(files[CONFIG]))).encode()
    return {**files, CONFIG: config}


def _chosen(sizes: Mapping[str, int], *, where: str) -> list[str]:
    names = [name for name in sizes if is_checkpoint_file(name) and not name.endswith(_WEIGHTS)]
    if CONFIG not in names:
        raise NotReadyError(f"it has no {CONFIG}", where=where)
    if sum(sizes[name] for name in names) > _MAX_BYTES:
        raise NotReadyError(f"its files beside the weights have more than {_MAX_BYTES} bytes", where=where)
    return names
