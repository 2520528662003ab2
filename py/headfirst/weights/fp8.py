"""FP8 e4m3fn, block-scaled, to BF16: exact fp32 multiply, then round to nearest even.

A code has 256 values and a block one scale, so each block has only 256 results: they are computed once per
block and looked up, which is exact by construction.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

BF16_NAN = 0x7FC0


def e4m3fn_values() -> npt.NDArray[np.float32]:
    """The value of every code 0…255: 1 sign, 4 exponent (bias 7), 3 mantissa bits; no infinities.

    Source: OCP 8-bit floating point specification (OFP8), table 1.
    """
    code = np.arange(256)
    exponent, mantissa = (code >> 3) & 15, code & 7
    normal = np.ldexp(1.0 + mantissa / 8.0, exponent - 7)
    subnormal = np.ldexp(mantissa / 8.0, -6)
    value = np.where(exponent == 0, subnormal, normal)
    value[(code & 0x7F) == 0x7F] = np.nan
    signed: npt.NDArray[np.float32] = np.where(code & 0x80, -value, value).astype(np.float32)
    return signed


def to_bf16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """BF16 bit patterns of fp32 values, rounded to nearest even; every NaN becomes 0x7fc0."""
    bits = values.view(np.uint32)
    rounded = (
        (bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(16)
    ).astype(np.uint16)
    rounded[np.isnan(values)] = BF16_NAN
    return rounded


def from_bf16(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """The fp32 values of BF16 bit patterns (exact)."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


_VALUES = e4m3fn_values()


def dequantise(
    codes: npt.NDArray[np.uint8], scales: npt.NDArray[np.float32], block_rows: int, block_columns: int
) -> npt.NDArray[np.uint16]:
    """BF16 bits [rows, columns] of FP8 codes [rows, columns] and their multipliers, one per block.

    `scales` is [ceil(rows / block_rows), ceil(columns / block_columns)]; edge blocks may be smaller.
    """
    out = np.empty(codes.shape, np.uint16)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        tables = to_bf16(_VALUES * scales[:, :, np.newaxis])
    for row in range(scales.shape[0]):
        rows = slice(row * block_rows, (row + 1) * block_rows)
        for column in range(scales.shape[1]):
            columns = slice(column * block_columns, (column + 1) * block_columns)
            out[rows, columns] = np.take(tables[row, column], codes[rows, columns])
    return out
