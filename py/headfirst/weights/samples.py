"""Blocks of the FP8 source that stay with a converted shard: they prove it later, when the source is gone."""

from __future__ import annotations

import json
import os
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import xxhash

from headfirst.errors import NotReadyError
from headfirst.untrusted import UntrustedError, integer, json_document, line
from headfirst.weights.files import STATE_FOLDER, write_whole
from headfirst.weights.recipe import Scaled, ShardRecipe

PER_SHARD = 2
_FOLDER = "samples"
_DEPTH = 3


@dataclass(frozen=True)
class Sample:
    """A block: where it starts in its tensor, its FP8 `codes` (rows × columns), the scale's fp32 bits."""

    tensor: str
    row: int
    column: int
    rows: int
    columns: int
    codes: bytes
    scale_bits: int


def take_samples(recipe: ShardRecipe, seed: str = "") -> list[Sample]:
    """PER_SHARD blocks (none where the shard has no FP8); the same for the same shard name and `seed`."""
    items = [item for item in recipe.scaled if 0 not in item.tensor.shape]
    if not items:
        return []
    draws = [
        xxhash.xxh3_64_intdigest(f"{recipe.source.path.name} {number} {seed}".encode())
        for number in range(PER_SHARD)
    ]
    return [_take(recipe, items[draw % len(items)], draw // len(items)) for draw in draws]


def _take(recipe: ShardRecipe, item: Scaled, draw: int) -> Sample:
    height, width = item.tensor.shape
    down, across = item.scale.shape
    block_row, block_column = divmod(draw % (down * across), across)
    row, column = block_row * recipe.block[0], block_column * recipe.block[1]
    rows, columns = min(recipe.block[0], height - row), min(recipe.block[1], width - column)
    with recipe.source.path.open("rb") as file:
        starts = [item.tensor.start + (row + line) * width + column for line in range(rows)]
        codes = b"".join(os.pread(file.fileno(), columns, start) for start in starts)
    size = 4 if item.scale.dtype == "F32" else 2
    with item.scale_shard.path.open("rb") as file:
        start = item.scale.start + (block_row * across + block_column) * size
        scale = int.from_bytes(os.pread(file.fileno(), size, start), "little")
    return Sample(item.tensor.name, row, column, rows, columns, codes, scale << 8 * (4 - size))


def save_samples(folder: Path, recipe: ShardRecipe, samples: Sequence[Sample]) -> None:
    """Keep the samples of one shard in the local state of the converted `folder`, with what they are from."""
    document = {
        "block": recipe.block,
        "inputs": {str(path.resolve()): file_state(path) for path in recipe.inputs},
        "samples": [asdict(sample) | {"codes": b64encode(sample.codes).decode()} for sample in samples],
    }
    path = folder / STATE_FOLDER / _FOLDER / f"{recipe.source.path.name}.json"
    write_whole(path, json.dumps(document).encode())


@dataclass(frozen=True)
class SavedSamples:
    """Samples of `shard`; `inputs` are the files it was made from, itself first, with their state then."""

    shard: str
    block: tuple[int, int]
    inputs: Sequence[tuple[Path, str]]
    samples: Sequence[Sample]


def load_samples(folder: Path) -> list[SavedSamples]:
    """All samples of the converted `folder`, by shard; NotReadyError where a file of them is spoilt."""
    return [_load(path) for path in sorted((folder / STATE_FOLDER / _FOLDER).glob("*.json"))]


def _load(path: Path) -> SavedSamples:
    try:
        document = json_document(path.read_bytes(), what="the file", depth=_DEPTH)
        samples = [_sample(entry) for entry in document["samples"]]
        rows, columns = (integer(size, what="a block's size", low=1) for size in document["block"])
        inputs = [(Path(name), str(state)) for name, state in document["inputs"].items()]
    except (UntrustedError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotReadyError(
            "the samples of a converted shard cannot be read",
            where=str(path),
            hint="Remove that file and the shard, then run again: it is converted again.",
        ) from error
    return SavedSamples(path.name.removesuffix(".json"), (rows, columns), inputs, samples)


def _sample(entry: dict[str, Any]) -> Sample:
    place = {
        name: integer(entry[name], what=name, high=1 << 40) for name in ("row", "column", "rows", "columns")
    }
    codes = b64decode(entry["codes"], validate=True)
    if len(codes) != place["rows"] * place["columns"]:
        raise UntrustedError("a sample has not as many codes as its rows and columns give")
    scale = integer(entry["scale_bits"], what="a scale", high=2**32 - 1)
    return Sample(line(entry["tensor"], what="a tensor name"), **place, codes=codes, scale_bits=scale)


def file_state(path: Path) -> str:
    """Size and modification time of a file, "" where it is gone: another state may be other content."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return ""
    return f"{stat.st_size} {stat.st_mtime_ns}"
