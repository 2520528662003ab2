"""MXFP4 to BF16: e2m1 codes times a power of two for each group of 32, transposed as gpt-oss stores it.

OCP Microscaling 1.0: e2m1 has 1 sign, 2 exponent (bias 1) and 1 mantissa bit, a scale is 2**(byte - 127). All
products but those that overflow are BF16 numbers. The scale 255, NaN there, is 2**128 to the reference
(transformers' convert_moe_packed_tensors) and so here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from headfirst.common.convertible import GROUP
from headfirst.node.weights.convert.fp8 import compiled

_NORMAL_SCALES = (2, 252)
"""Scales with which 0.5 … 6 give normal BF16 numbers."""
_TILE = 64
"""Rows of codes whose cache lines are read while their 16 bytes of a group are converted."""


def dequantise(
    codes: npt.NDArray[np.uint8],
    scales: npt.NDArray[np.uint8],
    first_group: int,
    out: npt.NDArray[np.uint16],
) -> None:
    """Write the BF16 bits of MXFP4 groups, transposed, to `out` [32 * groups, rows].

    `codes` [rows, 16 * all groups] have the first value of a byte in its lower half; `scales` [rows, all
    groups]. `out` begins with `first_group`. All arrays are C-contiguous and writable. Releases the GIL.
    """
    _kernel(codes, scales, first_group, _TABLE, out)


def _table() -> npt.NDArray[np.uint16]:
    """BF16 bits [scale, code] of all products."""
    code = np.arange(16)
    exponent, mantissa = (code >> 1) & 3, code & 1
    value = np.where(exponent == 0, mantissa / 2, np.ldexp(1 + mantissa / 2, exponent - 1))
    products = np.ldexp(np.where(code & 8, -value, value), np.arange(256)[:, None] - 127)
    with np.errstate(over="ignore"):
        bits = products.astype(np.float32).view(np.uint32)
    return (bits >> np.uint32(16)).astype(np.uint16)


_TABLE = _table()


@njit(inline="always")
def _shifted(code: Any, shift: Any) -> Any:
    """BF16 bits of a code whose product is zero or normal; `shift` is the exponent of 0.5 times the scale."""
    size = np.uint16(code & 7)
    # Above 0.5 the code counts on in steps of half a binade, as BF16 does in its highest mantissa bit.
    above = np.uint16(size << 6) if size > 1 else np.uint16(0)
    number = np.uint16(shift + above) if size else np.uint16(0)
    return np.uint16(number | np.uint16(code & 8) << 12)


def _dequantise(codes: Any, scales: Any, first_group: int, table: Any, out: Any) -> None:
    rows = codes.shape[0]
    lowest, highest = _NORMAL_SCALES
    pairs = np.empty((GROUP // 2, _TILE), np.uint8)
    shifts = np.empty(_TILE, np.uint16)
    for group in range(out.shape[0] // GROUP):
        source = first_group + group
        for left in range(0, rows, _TILE):
            count = min(rows - left, _TILE)
            normal = True
            for row in range(count):
                scale = scales[left + row, source]
                normal = normal and lowest <= scale <= highest
                shifts[row] = (scale - 127 + 126) << 7
                for byte in range(GROUP // 2):
                    pairs[byte, row] = codes[left + row, source * (GROUP // 2) + byte]
            for byte in range(GROUP // 2):
                lower = out[group * GROUP + 2 * byte, left : left + count]
                upper = out[group * GROUP + 2 * byte + 1, left : left + count]
                line = pairs[byte]
                if normal:
                    for row in range(count):
                        lower[row] = _shifted(line[row] & 15, shifts[row])
                        upper[row] = _shifted(line[row] >> 4, shifts[row])
                else:
                    for row in range(count):
                        scale = scales[left + row, source]
                        lower[row] = table[scale, line[row] & 15]
                        upper[row] = table[scale, line[row] >> 4]


_kernel = compiled(_dequantise, "void(u1[:, ::1], u1[:, ::1], i8, u2[:, ::1], u2[:, ::1])")
