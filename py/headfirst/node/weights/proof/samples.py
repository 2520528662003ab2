"""Pieces of the quantised source that stay with a converted shard: they prove it when the source is gone."""

from __future__ import annotations

import json
import os
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any

import xxhash

from headfirst.common.errors import NotReadyError
from headfirst.common.untrusted import UntrustedError, integer, json_document, line
from headfirst.node.weights.convert.recipe import Scaled, ShardRecipe
from headfirst.node.weights.files import STATE_FOLDER, write_whole

E4M3, E2M1 = "e4m3", "e2m1"
PER_SHARD: Mapping[str, int] = {E4M3: 2, E2M1: 64}
"""Samples by type: blocks of FP8, groups of MXFP4."""
_CODES = 128 * 128
_WIDEST = 4096
_FOLDER = "samples"
_DEPTH = 3


@dataclass(frozen=True)
class ScaleSample:
    """Values that share a scale: `rows` x `columns` of the result from (`row`, `column`) on.

    Rows are counted through all matrices of a tensor. `codes` are the source's in the order of the result,
    their `type` e4m3 or e2m1 (two a byte); `scale_bits` is the pattern of an fp32 scale, of e2m1 the byte.
    """

    tensor: str
    row: int
    column: int
    rows: int
    columns: int
    codes: bytes
    scale_bits: int
    type: str = E4M3


def take_samples(recipe: ShardRecipe, seed: str = "") -> list[ScaleSample]:
    """PER_SHARD pieces (none where nothing is quantised); the same for the same shard name and `seed`."""
    items = [item for item in recipe.scaled if 0 not in item.shape]
    if not items:
        return []
    mxfp4 = recipe.format.kernel == "mxfp4"
    draws = [
        xxhash.xxh3_64_intdigest(f"{recipe.source.path.name} {number} {seed}".encode())
        for number in range(PER_SHARD[E2M1 if mxfp4 else E4M3])
    ]
    take = _take_group if mxfp4 else _take_block
    return [take(recipe, items[draw % len(items)], draw // len(items)) for draw in draws]


def _take_block(recipe: ShardRecipe, item: Scaled, draw: int) -> ScaleSample:
    """A block, or as much of a larger one as a block of DeepSeek-V3 has."""
    height, width = item.shape[-2:]
    down, across = -(-height // item.block[0]), -(-width // item.block[1])
    draw, number = divmod(draw, prod(item.shape[:-2]) * down * across)
    matrix_row, block_column = divmod(number, across)
    matrix, block_row = divmod(matrix_row, down)
    top, left = block_row * item.block[0], block_column * item.block[1]
    columns = min(item.block[1], width - left, _WIDEST)
    rows = min(item.block[0], height - top, max(1, _CODES // columns))
    draw, beside = divmod(draw, min(item.block[1], width - left) // columns)
    below = draw % (min(item.block[0], height - top) // rows)
    row, column = matrix * height + top + below * rows, left + beside * columns
    with recipe.source.path.open("rb") as file:
        starts = [item.tensor.start + (row + line) * width + column for line in range(rows)]
        codes = b"".join(os.pread(file.fileno(), columns, start) for start in starts)
    return ScaleSample(item.name, row, column, rows, columns, codes, _scale_bits(item, number))


def _scale_bits(item: Scaled, number: int) -> int:
    """The fp32 pattern of a scale."""
    size = {"F32": 4, "BF16": 2}.get(item.scale.dtype, 1)
    with item.scale_shard.path.open("rb") as file:
        scale = int.from_bytes(os.pread(file.fileno(), size, item.scale.start + number * size), "little")
    if size > 1:
        return scale << 8 * (4 - size)
    if item.scale.dtype == "F8_E8M0" and scale == 255:
        return 0x7FC00000
    return scale << 23 or 1 << 22


def _take_group(recipe: ShardRecipe, item: Scaled, draw: int) -> ScaleSample:
    """A group of MXFP4: a piece of a column of the result."""
    experts, rows, groups, size = item.tensor.shape
    number = draw % (experts * rows * groups)
    expert_row, group = divmod(number, groups)
    expert, row = divmod(expert_row, rows)
    with recipe.source.path.open("rb") as file:
        codes = os.pread(file.fileno(), size, item.tensor.start + number * size)
    with item.scale_shard.path.open("rb") as file:
        scale = os.pread(file.fileno(), 1, item.scale.start + number)[0]
    first = (expert * groups + group) * 2 * size
    return ScaleSample(item.name, first, row, 2 * size, 1, codes, scale, E2M1)


def save_samples(folder: Path, recipe: ShardRecipe, samples: Sequence[ScaleSample]) -> None:
    """Keep the samples of one shard in the local state of the converted `folder`, with what they are from."""
    document = {
        "inputs": {str(path.resolve()): file_state(path) for path in recipe.inputs},
        "samples": [asdict(sample) | {"codes": b64encode(sample.codes).decode()} for sample in samples],
    }
    path = folder / STATE_FOLDER / _FOLDER / f"{recipe.source.path.name}.json"
    write_whole(path, json.dumps(document).encode())


@dataclass(frozen=True)
class SavedSamples:
    """Samples of `shard`; `inputs` are the files it was made from, itself first, with their state then."""

    shard: str
    inputs: Sequence[tuple[Path, str]]
    samples: Sequence[ScaleSample]


def load_samples(folder: Path) -> list[SavedSamples]:
    """All samples of the converted `folder`, by shard; NotReadyError where a file of them is spoilt."""
    return [_load(path) for path in sorted((folder / STATE_FOLDER / _FOLDER).glob("*.json"))]


def _load(path: Path) -> SavedSamples:
    try:
        document = json_document(path.read_bytes(), what="the file", depth=_DEPTH)
        samples = [_sample(entry) for entry in document["samples"]]
        inputs = [(Path(name), str(state)) for name, state in document["inputs"].items()]
    except (UntrustedError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotReadyError(
            "the samples of a converted shard cannot be read",
            where=str(path),
            hint="Remove that file and the shard, then run again: it is converted again.",
        ) from error
    return SavedSamples(path.name.removesuffix(".json"), inputs, samples)


def _sample(entry: dict[str, Any]) -> ScaleSample:
    place = {
        name: integer(entry[name], what=name, high=1 << 40) for name in ("row", "column", "rows", "columns")
    }
    codes = b64decode(entry["codes"], validate=True)
    kind = line(entry.get("type", E4M3), what="a type")
    if kind not in PER_SHARD:
        raise UntrustedError("a sample is of an unknown type")
    if len(codes) * {E4M3: 1, E2M1: 2}[kind] != place["rows"] * place["columns"]:
        raise UntrustedError("a sample does not have one code for each row and column")
    scale = integer(entry["scale_bits"], what="a scale", high=2**32 - 1)
    return ScaleSample(
        line(entry["tensor"], what="a tensor name"), **place, codes=codes, scale_bits=scale, type=kind
    )


def file_state(path: Path) -> str:
    """Size and modification time of a file, "" where it is gone: another state may be other content."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return ""
    return f"{stat.st_size} {stat.st_mtime_ns}"
