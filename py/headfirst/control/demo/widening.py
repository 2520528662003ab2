"""From the trained model to the one that is stored: wider attention that computes the same, by zeros.

Engines have attention kernels for the real model's latent and rotary dimensions only; training four times as
many would take longer and teach nothing more.
"""

# mypy: disable-error-code="import-not-found"
from __future__ import annotations

import math

import torch

from headfirst.control.demo.architecture import CONFIG, TRAINED

_RANKS, _ROTARY, _NOPE = "kv_lora_rank", "qk_rope_head_dim", CONFIG["qk_nope_head_dim"]
_TIMES = CONFIG[_RANKS] // TRAINED[_RANKS]
_HEADS = CONFIG["num_attention_heads"]


def widened(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors (hub names) of the model CONFIG that answers as these of the model TRAINED."""
    return {name: _widen(name, tensor) for name, tensor in tensors.items()}


def _widen(name: str, tensor: torch.Tensor) -> torch.Tensor:
    if name.endswith("self_attn.kv_a_proj_with_mqa.weight"):
        latent, rotary = tensor.split([TRAINED[_RANKS], TRAINED[_ROTARY]])
        return torch.cat([_padded(latent, CONFIG[_RANKS]), _spread(rotary)])
    if name.endswith("self_attn.kv_a_layernorm.weight"):
        # The mean square of the latent is over zeros, too: the norm's result is sqrt(_TIMES) times as long.
        return _padded(tensor, CONFIG[_RANKS]) / math.sqrt(_TIMES)
    if name.endswith("self_attn.kv_b_proj.weight"):
        return _padded(tensor.T, CONFIG[_RANKS]).T
    if name.endswith("self_attn.q_b_proj.weight"):
        heads = tensor.view(_HEADS, -1, tensor.shape[1])
        wide = torch.cat([torch.cat([head[:_NOPE], _spread(head[_NOPE:])]) for head in heads])
        # Attention divides by the root of a head's length.
        return wide * math.sqrt((_NOPE + CONFIG[_ROTARY]) / (_NOPE + TRAINED[_ROTARY]))
    return tensor


def _padded(tensor: torch.Tensor, rows: int) -> torch.Tensor:
    return torch.cat([tensor, tensor.new_zeros(rows - len(tensor), *tensor.shape[1:])])


def _spread(rotary: torch.Tensor) -> torch.Tensor:
    """Each pair of rows to where its frequency is: theta^(-2i/16) is theta^(-2j/64) for j = 4i."""
    pairs = rotary.view(len(rotary) // 2, 2, -1)
    wide = pairs.new_zeros(len(pairs), _TIMES, 2, pairs.shape[2])
    wide[:, 0] = pairs
    return wide.flatten(end_dim=2)
