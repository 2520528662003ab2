"""FP8 with a scale for each block to BF16, in Triton."""

import triton
import triton.language as tl


@triton.jit
def dequantise(codes, scales, out, columns, BLOCK: tl.constexpr):
    """One program for each block of BLOCK × BLOCK; `scales` has one for each block, row by row."""
    row, column = tl.program_id(0), tl.program_id(1)
    down = row * BLOCK + tl.arange(0, BLOCK)[:, None]
    right = column * BLOCK + tl.arange(0, BLOCK)[None, :]
    at = down * columns + right
    scale = tl.load(scales + row * tl.num_programs(1) + column)
    tl.store(out + at, (tl.load(codes + at).to(tl.float32) * scale).to(tl.bfloat16))
