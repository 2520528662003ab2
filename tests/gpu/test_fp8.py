"""The converter's BF16 against what CUDA, Triton and transformers compute on the GPU: the same bits."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

Results = dict[str, Any]
BLOCK = 128


def weights(torch: Any) -> tuple[Any, Any]:
    """Codes but NaN, whose payloads differ; the scales give subnormal, normal and infinite results."""
    generator = torch.Generator().manual_seed(3)
    codes = torch.randint(0, 256, (8 * BLOCK, 4 * BLOCK), dtype=torch.uint8, generator=generator)
    codes = torch.where((codes & 0x7F) == 0x7F, codes ^ 1, codes)
    exponents = torch.randint(-130, 120, (8, 4), generator=generator)
    return codes, torch.ldexp(torch.rand((8, 4), generator=generator) + 1, exponents)


def converted(codes: Any, scales: Any) -> Any:
    fp8 = importlib.import_module("headfirst.node.weights.convert.fp8")
    out = np.empty(codes.shape, np.uint16)
    fp8.dequantise(codes.numpy().copy(), scales.numpy().copy(), (BLOCK, BLOCK), out)
    return out


def differing(torch: Any, ours: Any, theirs: Any) -> int:
    """Numbers whose bits differ; NaN, of zero times infinity, by class."""
    bits = theirs.contiguous().view(torch.int16).cpu().numpy().view(np.uint16)
    nan = torch.isnan(theirs).cpu().numpy()
    return int(np.count_nonzero((bits != ours) & ~nan))


def test_cuda_gives_the_same_bits(torch: Any, results: Results) -> None:
    codes, scales = weights(torch)
    values = codes.cuda().view(torch.float8_e4m3fn).to(torch.float32)
    spread = scales.cuda().repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    wrong = differing(torch, converted(codes, scales), (values * spread).to(torch.bfloat16))
    results["fp8_cuda"] = {"numbers": codes.numel(), "different": wrong}
    assert wrong == 0


def test_triton_gives_the_same_bits(torch: Any, results: Results) -> None:
    triton = pytest.importorskip("triton", reason="Triton is not installed")
    if torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("Triton reads FP8 e4m3fn on compute capability 8.9 and later")
    kernel = importlib.import_module("fp8_kernel").dequantise
    codes, scales = weights(torch)
    given, out = codes.cuda().view(torch.float8_e4m3fn), torch.empty(codes.shape, dtype=torch.bfloat16).cuda()
    kernel[(8, 4)](given, scales.cuda(), out, codes.shape[1], BLOCK=BLOCK)
    wrong = differing(torch, converted(codes, scales), out)
    results["fp8_triton"] = {"triton": triton.__version__, "numbers": codes.numel(), "different": wrong}
    assert wrong == 0


def test_transformers_gives_the_same_bits_on_the_gpu(torch: Any, results: Results) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    fp8 = importlib.import_module("transformers.integrations.finegrained_fp8")
    codes, scales = weights(torch)
    weight = codes.cuda().view(torch.float8_e4m3fn)
    theirs = fp8.Fp8Dequantize(None)._dequantize_one(weight, scales.cuda(), torch.bfloat16)
    wrong = differing(torch, converted(codes, scales), theirs)
    results["fp8_transformers"] = {"transformers": transformers.__version__, "different": wrong}
    assert wrong == 0
