"""The bits of the FP8 → BF16 kernel, against ml_dtypes (bit for bit, NaN by class)."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import headfirst
import numpy as np
import numpy.typing as npt
import pytest
from headfirst.node.weights.convert.fp8 import BF16_NAN, dequantise, e4m3fn_values
from together import together
from weights_checkpoints import BF16, FP8, bits_equal, fp8_weight, reference, scales

CODES = np.arange(256, dtype=np.uint8)
Bits = npt.NDArray[np.uint16]


def ours(codes: npt.NDArray[np.uint8], scale: npt.NDArray[np.float32], block: tuple[int, int]) -> Bits:
    out = np.full(codes.shape, 0xDEAD, np.uint16)
    dequantise(codes, scale, block, out)
    return out


def all_codes(scale: npt.NDArray[np.float32]) -> tuple[Bits, Bits]:
    """[scales, 256] of ours and of ml_dtypes: every code times each of the scales."""
    codes = np.tile(CODES, (scale.size, 1))
    found = ours(codes, scale.reshape(-1, 1).copy(), (1, 256))
    return found, reference(codes.view(FP8), scale.reshape(-1, 1), (1, 256))


def patterns(*values: int) -> npt.NDArray[np.float32]:
    return np.array(values, np.uint32).view(np.float32)


def test_all_codes_have_the_values_of_ml_dtypes() -> None:
    theirs = CODES.view(FP8).astype(np.float32)
    assert np.array_equal(e4m3fn_values(), theirs, equal_nan=True)
    assert np.array_equal(np.signbit(e4m3fn_values()), np.signbit(theirs))


@together("mantissa", [0, 1, 0x7FFF, 0x8000, 0x18000, 0x400000, 0x5A5A5A, 0x7FFFFF])
@together("sign", [0, 0x80000000])
def test_every_code_times_a_scale_of_every_exponent(mantissa: int, sign: int) -> None:
    """Subnormal results, overflow to infinity, zeros, NaN and infinite scales are among them."""
    found, theirs = all_codes(patterns(*(sign | exponent << 23 | mantissa for exponent in range(256))))
    assert bits_equal(found, theirs)
    assert (found[np.isnan(theirs.view(BF16).astype(np.float32))] == BF16_NAN).all()


def test_every_code_times_random_scales() -> None:
    bits = np.random.default_rng(5).integers(0, 2**32, 20_000, dtype=np.uint32)
    assert bits_equal(*all_codes(bits.view(np.float32)))


def test_rounding_is_to_nearest_even_for_every_upper_half_and_tie() -> None:
    """The code of 1.0, sixteen times a row (fast) and eight times (table), rounds the scale itself."""
    upper = np.arange(0x10000, dtype=np.uint32) << 16
    for lower in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF):
        scale = (upper | np.uint32(lower)).view(np.float32).reshape(-1, 1).copy()
        with np.errstate(all="ignore"):
            theirs = scale.astype(BF16).view(np.uint16)
        for width in (16, 8):
            found = ours(np.full((scale.size, width), 0x38, np.uint8), scale, (1, width))
            assert bits_equal(found, np.repeat(theirs, width, 1)), (hex(lower), width)


@together("shape", [(1, 1), (128, 128), (576, 7168 // 8), (129, 257), (300, 5), (3, 143)])
@together("block", [(128, 128), (1, 32), (64, 16), (7, 13)])
def test_shapes_that_are_no_multiple_of_the_block(shape: tuple[int, int], block: tuple[int, int]) -> None:
    weight, scale = fp8_weight(*shape), scales(*shape, block=block)
    assert bits_equal(ours(weight.view(np.uint8), scale, block), reference(weight, scale, block))


@pytest.mark.parametrize("cut", [1, 63, 64, 65, 200])
def test_a_tensor_in_two_strips_is_the_tensor(cut: int) -> None:
    weight, scale = fp8_weight(201, 70).view(np.uint8), scales(201, 70, block=(64, 16))
    out = np.zeros(weight.shape, np.uint16)
    dequantise(weight[:cut], scale, (64, 16), out[:cut])
    dequantise(weight[cut:], scale, (64, 16), out[cut:], cut)
    assert np.array_equal(out, ours(weight, scale, (64, 16)))


@pytest.mark.parametrize("columns", [16, 17, 31, 143])
@pytest.mark.parametrize("block", [(128, 128), (64, 16)])
def test_nothing_is_written_beside_the_rows_that_were_asked_for(columns: int, block: tuple[int, int]) -> None:
    codes, scale = np.full((3, columns), 0x38, np.uint8), np.ones((1, -(-columns // block[1])), np.float32)
    out = np.full((5, columns), 0xDEAD, np.uint16)
    dequantise(codes, scale, block, out[1:4])
    assert (out[1:4] == 0x3F80).all()
    assert (out[[0, 4]] == 0xDEAD).all()


def test_the_kernel_releases_the_gil() -> None:
    """While it runs in another thread this one keeps counting."""
    codes, scale = fp8_weight(16384, 16384).view(np.uint8), np.ones((128, 128), np.float32)
    out = np.empty(codes.shape, np.uint16)
    work = threading.Thread(target=dequantise, args=(codes, scale, (128, 128), out))
    work.start()
    ticks = 0
    while work.is_alive():
        time.sleep(0.001)
        ticks += 1
    assert ticks > 10


MODULE = "node/weights/convert/fp8"


def test_it_works_where_nothing_can_be_cached(tmp_path: Path) -> None:
    """A package folder and a home that cannot be written: numba compiles again and does not give up."""
    package = Path(headfirst.__file__).parent
    for name in (
        "__init__.py",
        "common/__init__.py",
        "common/errors.py",
        "node/__init__.py",
        "node/weights/__init__.py",
        "node/weights/convert/__init__.py",
        f"{MODULE}.py",
    ):
        copy = tmp_path / "headfirst" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((package / name).read_bytes())
    (tmp_path / "headfirst" / f"{MODULE}.py").with_name("__pycache__").write_text("no folder, even for root")
    code = "import headfirst.node.weights.convert.fp8 as m; print(m.__file__)"
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("NUMBA", "XDG"))},
        "HOME": "/dev/null",
        "PYTHONPATH": str(tmp_path),
    }
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == str(tmp_path / "headfirst" / f"{MODULE}.py"), done.stderr
