"""Block-wise FP8 as DeepSeek-V3 stores it: e4m3fn values and one float32 multiplier per 128×128 square.

Source: DeepSeek-V3's README_WEIGHTS.md. Kept apart from node/weights, so that the converter is
tested on files it did not write.
"""

# mypy: disable-error-code="import-not-found"
from __future__ import annotations

import torch

from headfirst.control.demo.architecture import BLOCK

LARGEST = 448.0  # the largest finite e4m3fn number


def is_stored_as_fp8(name: str) -> bool:
    """Return whether the real model keeps this tensor in FP8: all linear layers of attention and experts."""
    return name.endswith(("_proj.weight", "_proj_with_mqa.weight"))


def quantise(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (float8_e4m3fn [n, k], float32 scales [ceil(n/128), ceil(k/128)]) of a weight [n, k]."""
    rows, columns = (-(-size // BLOCK) for size in weight.shape)
    padded = torch.zeros(rows * BLOCK, columns * BLOCK)
    padded[: weight.shape[0], : weight.shape[1]] = weight
    largest = padded.view(rows, BLOCK, columns, BLOCK).abs().amax(dim=(1, 3))
    scale = torch.where(largest > 0, largest / LARGEST, 1.0)
    return (weight.float() / _spread(scale, weight.shape)).to(torch.float8_e4m3fn), scale


def dequantise(stored: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return the bfloat16 weight [n, k] of an FP8 weight [n, k] and its scales [ceil(n/128), ceil(k/128)]."""
    return (stored.float() * _spread(scale, stored.shape)).to(torch.bfloat16)


def _spread(scale: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    return scale.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)[: shape[0], : shape[1]]
