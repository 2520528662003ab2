"""One shard, FP8 to BF16, streamed: memory holds one strip of rows, whatever the size of the shard."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headfirst.errors import NotReadyError
from headfirst.weights.recipe import Scaled, ShardRecipe
from headfirst.weights.safetensors_io import Shard, Tensor, layout
from headfirst.weights.samples import Sample, take_samples
from headfirst.weights.shard_writer import ShardWriter

STRIP = 1024 * 1024
"""FP8 bytes at a time (at least one row); a conversion holds three times as much memory."""


class Stopped(Exception):
    """The conversion was told to stop; nothing of it is left."""


@dataclass(frozen=True)
class Converted:
    """A converted shard: bytes, xxh3 (128 bits) in hex, and blocks of its source to prove it by later."""

    size: int
    xxh3: str
    samples: Sequence[Sample]


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

    `seen` is told the bytes of the source as they are done; `stopped` is asked between strips, and the answer
    True ends it with Stopped. Raises NotReadyError where an input ends early, OSError as the disk does.
    """
    header, tensors, size = _layout(recipe)
    copied = {tensor.name: tensor for tensor in recipe.copied}
    scaled = {item.tensor.name: item for item in recipe.scaled}
    widest = max((item.tensor.shape[1] for item in recipe.scaled), default=0)
    room = max(2 * max(STRIP, widest), len(header))
    with _Inputs() as inputs, ShardWriter(target, size, room) as out:
        strip = memoryview(bytearray(max(STRIP, widest) if scaled else 0))

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
                continue
            item = scaled[tensor.name]
            rows, columns = item.tensor.shape
            step = max(1, STRIP // columns) if columns else rows or 1
            for row in range(0, rows if columns else 0, step):
                count = min(step, rows - row) * columns
                codes = strip[:count]
                inputs.read(recipe.source, item.tensor.start + row * columns, codes)
                _dequantise(inputs, item, recipe.block, row, codes, out.free(2 * count))
                done(2 * count, count)
        samples = take_samples(recipe)
        return Converted(size, out.finish(), samples)


def _dequantise(
    inputs: _Inputs, item: Scaled, block: tuple[int, int], row: int, codes: memoryview, out: memoryview
) -> None:
    """The rows from `row` on: `codes` to `out`, with the scales of those rows."""
    from headfirst.weights.fp8 import dequantise  # only here: numba takes most of a second to import

    columns = item.tensor.shape[1]
    rows = len(codes) // columns
    first, last = row // block[0], -(-(row + rows) // block[0])
    dequantise(
        np.frombuffer(codes, np.uint8).reshape(rows, columns),
        _scales(inputs, item, first, last),
        block,
        np.frombuffer(out, np.uint16).reshape(rows, columns),
        row - first * block[0],
    )


def _scales(inputs: _Inputs, item: Scaled, first: int, last: int) -> npt.NDArray[np.float32]:
    """The rows `first` … `last` of the scales, widened to fp32 (exact)."""
    columns = item.scale.shape[1]
    wide = item.scale.dtype == "F32"
    values = np.empty((last - first, columns), "<u4" if wide else "<u2")
    line = columns * values.itemsize
    inputs.read(item.scale_shard, item.scale.start + first * line, values.data.cast("B"))
    bits = values if wide else values.astype(np.uint32) << np.uint32(16)
    return bits.view(np.float32)


class _Inputs(ExitStack):
    """The files that one conversion reads, each opened once."""

    def __init__(self) -> None:
        super().__init__()
        self._files: dict[Path, int] = {}

    def read(self, shard: Shard, start: int, into: memoryview) -> None:
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


def _layout(recipe: ShardRecipe) -> tuple[bytes, list[Tensor], int]:
    """Header, tensors in file order, and size in bytes of the converted shard."""
    return layout(
        [(tensor.name, tensor.dtype, tensor.shape) for tensor in recipe.copied]
        + [(item.tensor.name, "BF16", item.tensor.shape) for item in recipe.scaled]
    )
