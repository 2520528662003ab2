"""One shard, FP8 to BF16, streamed: memory holds a few rows of blocks, whatever the size of the shard."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import xxhash

from headfirst.weights.files import CHUNK, publish
from headfirst.weights.fp8 import dequantise, from_bf16
from headfirst.weights.recipe import Scaled, ShardRecipe
from headfirst.weights.safetensors_io import Tensor, layout, read_bytes


def converted_layout(recipe: ShardRecipe) -> tuple[bytes, list[Tensor], int]:
    """Header, tensors in file order, and size in bytes of the converted shard."""
    return layout(
        [(tensor.name, tensor.dtype, tensor.shape) for tensor in recipe.copied]
        + [(item.tensor.name, "BF16", item.tensor.shape) for item in recipe.scaled]
    )


def convert_shard(recipe: ShardRecipe, target: Path) -> str:
    """Write the converted shard to `target`, whole or not at all; returns its hex xxh3."""
    header, tensors, _ = converted_layout(recipe)
    copied = {tensor.name: tensor for tensor in recipe.copied}
    scaled = {item.tensor.name: item for item in recipe.scaled}
    digest = xxhash.xxh3_128()
    part = target.with_name(f".{target.name}.part")
    with recipe.source.path.open("rb") as source, part.open("wb") as out:

        def write(data: bytes | memoryview) -> None:
            out.write(data)
            digest.update(data)

        write(header)
        for tensor in tensors:
            if tensor.name in copied:
                for chunk in _chunks(source, copied[tensor.name], CHUNK):
                    write(chunk)
            else:
                for rows in _dequantised(source, scaled[tensor.name], recipe.block):
                    write(rows.data.cast("B"))
        out.flush()
        os.fsync(out.fileno())
    publish(part, target)
    return digest.hexdigest()


def _chunks(source: BinaryIO, tensor: Tensor, step: int) -> Iterator[bytes]:
    for start in range(tensor.start, tensor.end, step):
        yield os.pread(source.fileno(), min(step, tensor.end - start), start)


def _dequantised(source: BinaryIO, item: Scaled, block: tuple[int, int]) -> Iterator[npt.NDArray[np.uint16]]:
    rows, columns = item.tensor.shape
    if not rows or not columns:
        return
    scales = _read_scale(item)
    blocks_at_once = max(1, CHUNK // (block[0] * columns))
    step = blocks_at_once * block[0] * columns
    for number, chunk in enumerate(_chunks(source, item.tensor, step)):
        first = number * blocks_at_once
        codes = np.frombuffer(chunk, np.uint8).reshape(-1, columns)
        yield dequantise(codes, scales[first : first + blocks_at_once], *block)


def _read_scale(item: Scaled) -> npt.NDArray[np.float32]:
    raw = read_bytes(item.scale_shard, item.scale)
    values = np.frombuffer(raw, "<f4") if item.scale.dtype == "F32" else from_bf16(np.frombuffer(raw, "<u2"))
    return values.reshape(item.scale.shape)
