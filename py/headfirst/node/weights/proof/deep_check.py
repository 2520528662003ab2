"""Prove converted shards by their source, with arithmetic that shares nothing with the converter's.

Everything is float64, in which the product of a code's value and a scale is exact.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from math import ldexp, prod
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headfirst.common.safetensors_file import read_shard
from headfirst.node.weights.convert.recipe import format_of, make_recipe
from headfirst.node.weights.proof.checkpoint_check import CONFIG
from headfirst.node.weights.proof.samples import (
    E2M1,
    E4M3,
    SavedSamples,
    ScaleSample,
    file_state,
    load_samples,
    take_samples,
)


def check_samples(folder: Path) -> Mapping[str, str]:
    """What is wrong, by shard name, with the shards of `folder` that were converted here.

    The blocks that were kept at conversion are dequantised again and compared bit for bit (NaN by class);
    where a shard's source is still as it was, so are blocks of it drawn again. Raises NotReadyError where
    a shard or the samples cannot be read.
    """
    wrong = {}
    for saved in load_samples(folder):
        served = folder / saved.shard
        if not served.is_file():
            continue  # no shard of this checkpoint any more; the manifest shows a missing one
        for sample in (*saved.samples, *_fresh(saved)):
            if not _agrees(served, sample):
                place = f"row {sample.row}, column {sample.column} of tensor {sample.tensor}"
                wrong[saved.shard] = f"the block at {place} differs from its source"
                break
    return wrong


def _fresh(saved: SavedSamples) -> Sequence[ScaleSample]:
    """Blocks drawn by chance, where every input is still what the shard was made from."""
    changed = any(file_state(path) != state for path, state in saved.inputs)
    if changed or not (saved.inputs[0][0].parent / CONFIG).is_file():
        return []
    shard, *homes = (read_shard(path) for path, _state in saved.inputs)
    recipe = make_recipe(shard, homes, format_of(shard.path.parent))
    return take_samples(recipe, secrets.token_hex(8)) if recipe else []


def _agrees(served: Path, sample: ScaleSample) -> bool:
    tensor = read_shard(served).tensors.get(sample.tensor)
    if tensor is None or tensor.dtype != "BF16" or not tensor.shape:
        return False
    height, width = prod(tensor.shape[:-1]), tensor.shape[-1]
    if sample.row + sample.rows > height or sample.column + sample.columns > width:
        return False
    with served.open("rb") as file:
        starts = [
            tensor.start + 2 * ((sample.row + line) * width + sample.column) for line in range(sample.rows)
        ]
        actual = b"".join(os.pread(file.fileno(), 2 * sample.columns, start) for start in starts)
    expected = {E4M3: expected_bits, E2M1: expected_bits_of_mxfp4}[sample.type]
    return equal_bits(np.frombuffer(actual, "<u2"), expected(sample.codes, sample.scale_bits))


def equal_bits(actual: npt.NDArray[np.uint16], expected: npt.NDArray[np.uint16]) -> bool:
    """Whether BF16 patterns are equal, a NaN being equal to any NaN."""
    nan = (expected & 0x7FFF) > 0x7F80
    return bool(
        np.array_equal((actual & 0x7FFF) > 0x7F80, nan) and np.array_equal(actual[~nan], expected[~nan])
    )


def expected_bits(codes: bytes, scale_bits: int) -> npt.NDArray[np.uint16]:
    """BF16 patterns of FP8 e4m3fn codes times a scale (an fp32 pattern): rounded to fp32, then to BF16."""
    sign, exponent, mantissa = _fields(scale_bits, 8, 23)
    scale = _value(sign, exponent, mantissa, 127, 23)
    if exponent == 255:
        scale = np.nan if mantissa else np.copysign(np.inf, scale)
    fields = [_fields(code, 4, 3) for code in range(256)]
    values = np.array([_value(*field, 7, 3) for field in fields])
    values[[field[1:] == (15, 7) for field in fields]] = np.nan
    with np.errstate(all="ignore"):
        table = _round(_round(values * scale, 24), 8)
        bits = table.astype(np.float32).view(np.uint32) >> np.uint32(16)  # exact: 8 significant bits
    return bits.astype(np.uint16)[np.frombuffer(codes, np.uint8)]


def expected_bits_of_mxfp4(codes: bytes, scale: int) -> npt.NDArray[np.uint16]:
    """BF16 patterns of MXFP4 codes, two a byte, the lower half first, times 2**(scale - 127)."""
    values = np.array([_value(*_fields(code, 2, 1), 1, 1) for code in range(16)])
    with np.errstate(over="ignore"):
        table = _round(values * ldexp(1, scale - 127), 8).astype(np.float32).view(np.uint32)
    pairs = np.frombuffer(codes, np.uint8)
    order = np.stack([pairs & 15, pairs >> 4], 1).reshape(-1)
    return (table >> np.uint32(16)).astype(np.uint16)[order]


def _fields(pattern: int, exponent_bits: int, mantissa_bits: int) -> tuple[int, int, int]:
    exponent = pattern >> mantissa_bits & (1 << exponent_bits) - 1
    return pattern >> mantissa_bits + exponent_bits, exponent, pattern & (1 << mantissa_bits) - 1


def _value(sign: int, exponent: int, mantissa: int, bias: int, mantissa_bits: int) -> float:
    fraction = mantissa / 2**mantissa_bits
    size = ldexp(1 + fraction, exponent - bias) if exponent else ldexp(fraction, 1 - bias)
    return -size if sign else size


def _round(values: npt.NDArray[np.float64], significant: int) -> npt.NDArray[np.float64]:
    """To nearest even with `significant` bits and fp32's range of exponents; too large becomes infinite."""
    _mantissa, exponent = np.frexp(values)
    step = np.ldexp(1.0, np.maximum(exponent, -125) - significant)
    rounded: npt.NDArray[np.float64] = np.rint(values / step) * step
    rounded[np.abs(rounded) >= 2.0**128] *= np.inf
    return rounded
