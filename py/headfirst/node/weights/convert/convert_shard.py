"""One shard to BF16, streamed: memory holds a few strips, whatever the size of the shard and its tensors."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headfirst.common.convertible import GROUP, Format
from headfirst.common.errors import NotReadyError
from headfirst.common.safetensors_file import SafetensorsFile, StoredTensor, layout
from headfirst.node.weights.convert.recipe import Scaled, ShardRecipe
from headfirst.node.weights.convert.shard_writer import ShardWriter
from headfirst.node.weights.proof.samples import ScaleSample, take_samples

STRIP = 1024 * 1024
"""Source bytes at a time (at least one row); a conversion holds three to five times as much memory."""
_SCALE_TYPES = {"F32": "<u4", "BF16": "<u2", "F8_E8M0": "u1", "U8": "u1"}


class Stopped(Exception):
    """The conversion was stopped on request; nothing of it is left."""


@dataclass(frozen=True)
class Converted:
    """A converted shard: bytes, xxh3 (128 bits) in hex, and blocks of its source to prove it by later."""

    size: int
    xxh3: str
    samples: Sequence[ScaleSample]


def converted_size(recipe: ShardRecipe) -> int:
    """Bytes of the converted shard."""
    return _layout(recipe)[2]


def convert_shard(
    recipe: ShardRecipe,
    target: Path,
    *,
    seen: Callable[[int], object] = lambda _count: None,
    stopped: Callable[[], bool] = lambda: False,
) -> Converted:
    """Write the converted shard to `target`, whole or not at all. Several threads may do so at once.

    `seen` is called with the bytes of the source as they are done, and `stopped` between strips: True ends
    the conversion with Stopped. Raises NotReadyError where an input ends early, OSError as the disk does.
    """
    header, tensors, size = _layout(recipe)
    copied = {tensor.name: tensor for tensor in recipe.copied}
    scaled = {item.name: item for item in recipe.scaled}
    stream = {"fp8": _stream_fp8, "mxfp4": _stream_mxfp4}[recipe.format.kernel]
    lines = [_line(item, recipe.format) for item in recipe.scaled]
    strip = memoryview(bytearray(max([STRIP, *(read for read, _written in lines)]) if scaled else 0))
    room = max([2 * STRIP, len(header), *(written for _read, written in lines)])
    with _Inputs() as inputs, ShardWriter(target, size, room) as out:

        def done(written: int, read: int) -> None:
            out.add(written)
            seen(read)
            if stopped():
                raise Stopped

        out.free(len(header))[:] = header
        out.add(len(header))
        for tensor in tensors:
            if tensor.name in copied:
                source = copied[tensor.name]
                for start in range(source.start, source.end, room):
                    count = min(room, source.end - start)
                    inputs.read(recipe.source, start, out.free(count))
                    done(count, count)
            elif 0 not in tensor.shape:
                stream(inputs, recipe.source, scaled[tensor.name], strip, out, done)
        samples = take_samples(recipe)
        return Converted(size, out.finish(), samples)


_Done = Callable[[int, int], None]
"""Called with the bytes that are in the writer's memory now, and the bytes of the source for them."""


def _line(item: Scaled, form: Format) -> tuple[int, int]:
    """The least that can be converted of a tensor: bytes of the source, bytes of the result."""
    if form.kernel == "fp8":
        return item.shape[-1], 2 * item.shape[-1]
    return prod(item.tensor.shape[2:]), 2 * GROUP * item.shape[-1]


def _stream_fp8(
    inputs: _Inputs, source: SafetensorsFile, item: Scaled, strip: memoryview, out: ShardWriter, done: _Done
) -> None:
    """A strip of rows at a time, matrix by matrix."""
    # Only here: numba takes most of a second to import.
    from headfirst.node.weights.convert.fp8 import dequantise

    rows, columns = item.shape[-2:]
    height, width = item.block
    grid = -(-rows // height), -(-columns // width)
    step = len(strip) // columns
    for matrix in range(prod(item.shape[:-2])):
        for row in range(0, rows, step):
            count = min(step, rows - row)
            codes = strip[: count * columns]
            inputs.read(source, item.tensor.start + (matrix * rows + row) * columns, codes)
            first, last = row // height, -(-(row + count) // height)
            dequantise(
                np.frombuffer(codes, np.uint8).reshape(count, columns),
                _scales(inputs, item, (matrix * grid[0] + first) * grid[1], (last - first, grid[1])),
                item.block,
                np.frombuffer(out.free(2 * len(codes)), np.uint16).reshape(count, columns),
                row - first * height,
            )
            done(2 * len(codes), len(codes))


def _scales(inputs: _Inputs, item: Scaled, first: int, shape: tuple[int, int]) -> npt.NDArray[np.float32]:
    """`shape` scales from number `first` on, widened to fp32 (exact)."""
    values = np.empty(shape, _SCALE_TYPES[item.scale.dtype])
    inputs.read(item.scale_shard, item.scale.start + first * values.itemsize, values.data.cast("B"))
    if item.scale.dtype == "F32":
        return values.view(np.float32)
    if item.scale.dtype == "BF16":
        return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)
    bits = values.astype(np.uint32) << np.uint32(23)  # 2**(byte - 127): the byte is fp32's exponent field
    bits[values == 0] = 1 << 22  # 2**-127 has none
    if item.scale.dtype == "F8_E8M0":
        bits[values == 255] |= 1 << 22  # NaN; in a plain byte, 2**128 (transformers' Fp8Dequantize)
    return bits.view(np.float32)


def _stream_mxfp4(
    inputs: _Inputs, source: SafetensorsFile, item: Scaled, strip: memoryview, out: ShardWriter, done: _Done
) -> None:
    """A few groups of all rows at a time, expert by expert: the result has them as rows.

    As many groups as fit into twice a strip are held; each such part reads all of the expert.
    """
    from headfirst.node.weights.convert.mxfp4 import dequantise

    experts, rows, groups, size = item.tensor.shape
    most_groups = max(1, min(groups, 2 * len(strip) // (rows * size)))
    step = max(1, 2 * STRIP // (2 * GROUP * rows))
    for expert, first in product(range(experts), range(0, groups, most_groups)):
        count = min(most_groups, groups - first)
        codes, scales = np.empty((rows, count * size), np.uint8), np.empty((rows, count), np.uint8)
        start, scale_start = item.tensor.start, item.scale.start
        start += expert * rows * groups * size
        scale_start += expert * rows * groups
        _read_columns(inputs, source, start, groups * size, first * size, codes, strip)
        _read_columns(inputs, item.scale_shard, scale_start, groups, first, scales, strip)
        for group in range(0, count, step):
            step_groups = min(step, count - group)
            written = 2 * step_groups * GROUP * rows
            result = np.frombuffer(out.free(written), np.uint16).reshape(step_groups * GROUP, rows)
            dequantise(codes, scales, group, result)
            done(written, step_groups * size * rows)


def _read_columns(
    inputs: _Inputs,
    shard: SafetensorsFile,
    start: int,
    width: int,
    first: int,
    into: npt.NDArray[np.uint8],
    strip: memoryview,
) -> None:
    """Fill `into` [rows, columns] with the columns from `first` on of rows of `width` bytes at `start`."""
    rows, columns = into.shape
    if columns == width:
        inputs.read(shard, start, into.data.cast("B"))
        return
    step = len(strip) // width
    for row in range(0, rows, step):
        count = min(step, rows - row)
        lines = strip[: count * width]
        inputs.read(shard, start + row * width, lines)
        into[row : row + count] = np.frombuffer(lines, np.uint8).reshape(count, width)[
            :, first : first + columns
        ]


class _Inputs(ExitStack):
    """The files that one conversion reads, each opened once."""

    def __init__(self) -> None:
        super().__init__()
        self._files: dict[Path, int] = {}

    def read(self, shard: SafetensorsFile, start: int, into: memoryview) -> None:
        """Fill `into` with the bytes from `start` on."""
        path = shard.path
        if path not in self._files:
            self._files[path] = self.enter_context(path.open("rb", buffering=0)).fileno()
        filled = 0
        while filled < len(into):
            count = os.preadv(self._files[path], [into[filled:]], start + filled)
            if count == 0:
                raise NotReadyError(f"shard {path.name} became shorter while it was read", where=str(path))
            filled += count


def _layout(recipe: ShardRecipe) -> tuple[bytes, list[StoredTensor], int]:
    """Header, tensors in file order, and size in bytes of the converted shard."""
    return layout(
        [(tensor.name, tensor.dtype, tensor.shape) for tensor in recipe.copied]
        + [(item.name, "BF16", item.shape) for item in recipe.scaled]
    )
