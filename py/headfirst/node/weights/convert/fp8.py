"""FP8 e4m3fn, with a scale a block, to BF16: exactly an fp32 multiply, then round to nearest even.

A block may be a row or the whole matrix.

Multiplying by a power of two commutes with rounding as long as the results are normal numbers. A block whose
scale marks as normal has only 16 results to round: 8 of the smallest normal codes, from which the other
normal ones differ by their exponent alone, and 8 of the subnormal codes. They are read 16 codes at a
time. Any other block is read from the table of its 256 results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

BF16_NAN = 0x7FC0
LANES = 16
"""Codes converted at once; a narrower block is read one by one."""
_NORMAL_EXPONENTS = (7, 245)
"""Biased exponents of the scales with which 2**-6 … 480, the normal values, give normal BF16 numbers."""


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


def dequantise(
    codes: npt.NDArray[np.uint8],
    scales: npt.NDArray[np.float32],
    block: tuple[int, int],
    out: npt.NDArray[np.uint16],
    first_row: int = 0,
) -> None:
    """Write the BF16 bits of FP8 codes [rows, columns] times their multipliers to `out` [rows, columns].

    `codes` are the rows from `first_row` on of a tensor; `scales` [row blocks, column blocks] are those of
    the whole tensor, one for each `block` (rows, columns); blocks at its edges may be smaller. Every NaN
    becomes 0x7fc0. All arrays are C-contiguous and writable. Releases the GIL.
    """
    _kernel(codes, scales, first_row, block[0], block[1], out)


def compiled(function: Callable[..., None], signature: str) -> Callable[..., None]:
    """Machine code that runs without the GIL, kept on disk where numba finds a folder for it."""
    try:
        return njit(signature, nogil=True, cache=True)(function)
    except RuntimeError:  # neither the folder of this package nor the user's cache can be written
        return njit(signature, nogil=True)(function)


_VALUES = e4m3fn_values()


def _fill(scale: Any, products: Any, bits: Any, table: Any) -> None:
    """BF16 bits of the first codes times `scale`; `bits` are the same memory as `products`, for scratch."""
    for code in range(table.size):
        products[code] = _VALUES[code] * scale
    for code in range(table.size):
        pattern = bits[code]
        rounded = (pattern + 0x7FFF + ((pattern >> 16) & 1)) >> 16
        table[code] = BF16_NAN if np.isnan(products[code]) else rounded


_fill_table = njit(_fill)


def _lanes(_context: Any, codes: Any, code: Any, table: Any, out: Any, position: Any) -> Any:
    """out[position:][:LANES] from codes[code:][:LANES] and the 16 rounded significands.

    The lookup is written as LLVM's plain vector operations, which it turns into the processor's byte shuffle
    (x86 pshufb, ARM tbl; where there is none it stays correct). Numba's own vectoriser does not find it.
    """

    def generate(context: Any, build: Any, signature: Any, arguments: Any) -> Any:
        def data(argument: int) -> Any:
            return context.make_array(signature.args[argument])(context, build, arguments[argument]).data

        byte, word, index = ir.IntType(8), ir.IntType(16), ir.IntType(32)
        byte_lanes, word_lanes = ir.VectorType(byte, LANES), ir.VectorType(word, LANES)

        def bytes_of(value: int) -> Any:
            return ir.Constant(byte_lanes, [value] * LANES)

        def words_of(value: int) -> Any:
            return ir.Constant(word_lanes, [value] * LANES)

        def widened(lanes: Any, shift: int) -> Any:
            return build.shl(build.zext(lanes, word_lanes), words_of(shift))

        def look_up(entries: Any, keys: Any) -> Any:
            vector = ir.Constant(byte_lanes, ir.Undefined)
            for lane in range(LANES):
                key = build.zext(build.extract_element(keys, index(lane)), index)
                vector = build.insert_element(vector, build.extract_element(entries, key), index(lane))
            return vector

        start = build.gep(data(0), [arguments[1]])
        lanes = build.load(build.bitcast(start, byte_lanes.as_pointer()), align=1)
        entries = build.load(build.bitcast(data(2), word_lanes.as_pointer()), align=2)
        magnitude = build.and_(lanes, bytes_of(0x7F))
        is_normal = build.icmp_unsigned(">=", magnitude, bytes_of(8))
        keys = build.or_(build.and_(lanes, bytes_of(7)), build.select(is_normal, bytes_of(8), bytes_of(0)))
        low = look_up(build.trunc(entries, byte_lanes), keys)
        high = look_up(build.trunc(build.lshr(entries, words_of(8)), byte_lanes), keys)
        result = build.or_(widened(low, 0), widened(high, 8))
        result = build.add(result, widened(build.and_(lanes, bytes_of(0x78)), 4))
        result = build.xor(result, widened(build.and_(lanes, bytes_of(0x80)), 8))
        is_nan = build.icmp_unsigned("==", magnitude, bytes_of(0x7F))
        result = build.select(is_nan, words_of(BF16_NAN), result)
        end = build.gep(data(3), [arguments[4]])
        build.store(result, build.bitcast(end, word_lanes.as_pointer()), align=2)
        return context.get_dummy_value()

    return types.none(codes, code, table, out, position), generate


_convert_lanes: Any = intrinsic(_lanes)


def _dequantise(
    codes: Any, scales: Any, first_row: int, block_rows: int, block_columns: int, out: Any
) -> None:
    rows, columns = codes.shape
    lowest, highest = _NORMAL_EXPONENTS
    scale_bits = scales.view(np.uint32)
    products = np.empty(256, np.float32)
    bits = products.view(np.uint32)
    table = np.empty(256, np.uint16)
    short_tables = np.empty((scales.shape[1], LANES), np.uint16)
    is_short = np.empty(scales.shape[1], np.bool_)
    top = 0
    while top < rows:
        row_block = (first_row + top) // block_rows
        bottom = min(rows, (row_block + 1) * block_rows - first_row)
        for column_block in range(scales.shape[1]):
            left = column_block * block_columns
            width = min(block_columns, columns - left)
            exponent = (scale_bits[row_block, column_block] >> 23) & 0xFF
            is_short[column_block] = width >= LANES and lowest <= exponent <= highest
            if is_short[column_block]:
                short = short_tables[column_block]
                _fill_table(scales[row_block, column_block], products, bits, short)
                for code in range(8, LANES):
                    short[code] -= 0x80  # these were of exponent field 1, and the field is added
            else:
                _fill_table(scales[row_block, column_block], products, bits, table)
                for row in range(top, bottom):
                    for column in range(left, left + width):
                        out[row, column] = table[codes[row, column]]
        for row in range(top, bottom):  # row by row: memory is read and written in its order
            for column_block in range(scales.shape[1]):
                if is_short[column_block]:
                    left = column_block * block_columns
                    last = min(left + block_columns, columns) - LANES
                    for start in range(left, last + LANES, LANES):
                        at = min(start, last)  # the last step overlaps the one before
                        _convert_lanes(codes[row], at, short_tables[column_block], out[row], at)
        top = bottom


_kernel = compiled(_dequantise, "void(u1[:, ::1], f4[:, ::1], i8, i8, i8, u2[:, ::1])")
