"""Writes and reads the checkpoint folder: sharded safetensors with an index, as the hub has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save

from headfirst.control.demo.architecture import BLOCK, CONFIG, GENERATION_CONFIG

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


INDEX = "model.safetensors.index.json"
SHARD_BYTES = 1_000_000
SCALE = "_scale_inv"  # what the real model appends to a weight's name to name its scales


def write(tensors: dict[str, torch.Tensor], folder: Path) -> None:
    """Write float32 `tensors` (hub names) as FP8 and BF16 shards, with their index and both configs."""
    for old in folder.glob("*.safetensors"):
        old.unlink()
    shards = _shards(_stored(tensors))
    weight_map: dict[str, str] = {}
    for number, shard in enumerate(shards, start=1):
        file = f"model-{number:05d}-of-{len(shards):06d}.safetensors"
        (folder / file).write_bytes(save(shard, metadata={"format": "pt"}))
        weight_map |= dict.fromkeys(shard, file)
    total = sum(tensor.nbytes for shard in shards for tensor in shard.values())
    write_json(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": weight_map})
    write_json(folder / "config.json", CONFIG)
    write_json(folder / "generation_config.json", GENERATION_CONFIG)


def read_as_bf16(folder: Path) -> dict[str, torch.Tensor]:
    """Return the tensors in `folder` under their hub names, without FP8 and without scales."""
    stored: dict[str, torch.Tensor] = {}
    for file in folder.glob("*.safetensors"):
        stored |= load_file(file)
    return {
        name: dequantise(tensor, stored[name + SCALE]) if is_stored_as_fp8(name) else tensor
        for name, tensor in stored.items()
        if not name.endswith(SCALE)
    }


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write `content` for people to read."""
    path.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def _stored(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors in the types they are stored in, each FP8 weight followed by its scales."""
    stored: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        if is_stored_as_fp8(name):
            stored[name], stored[name + SCALE] = quantise(tensor)
        elif name.endswith("e_score_correction_bias"):
            stored[name] = tensor.float()
        else:
            stored[name] = tensor.to(torch.bfloat16)
    return stored


def _shards(stored: dict[str, torch.Tensor]) -> list[dict[str, torch.Tensor]]:
    """Cut where a shard is full, even between a weight and its scales: in the real model that happens too."""
    shards: list[dict[str, torch.Tensor]] = [{}]
    for name, tensor in stored.items():
        if sum(stored_tensor.nbytes for stored_tensor in shards[-1].values()) >= SHARD_BYTES:
            shards.append({})
        shards[-1][name] = tensor.contiguous()
    return shards
