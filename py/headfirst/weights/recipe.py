"""What to do with each tensor of an FP8 checkpoint: copy it, or dequantise it with its scale from any shard.

Whatever is not understood is refused with the tensor's name: a guess would serve a broken model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headfirst.errors import InputError
from headfirst.weights.checkpoint_check import CONFIG, read_json
from headfirst.weights.safetensors_io import DTYPE_BITS, Shard, Tensor

FP8 = "F8_E4M3"
SCALE_SUFFIX = "_scale_inv"
"""Despite its name it multiplies (README_WEIGHTS.md of DeepSeek-V3)."""
_SCALE_DTYPES = ("F32", "BF16")
_PACKED_DTYPES = ("F8_E8M0", "F8_E5M2", "F4", "F6_E2M3", "F6_E3M2")
_UNKNOWN_SUFFIX = re.compile(
    r"[._](weight|input|activation)_(scales?(_\d+)?|packed|zero_point|shape)$"
    r"|\.(scales?|qweight|qzeros|g_idx)$|_blocks$"
)
_HINT = (
    "FP8 e4m3 with block scales can be converted (DeepSeek-V3/R1, Qwen3-FP8); else take a BF16 checkpoint."
)


@dataclass(frozen=True)
class Scaled:
    """An FP8 tensor, the shard that holds its scale, and the scale."""

    tensor: Tensor
    scale_shard: Shard
    scale: Tensor


@dataclass(frozen=True)
class ShardRecipe:
    """One shard's work. `block` is (rows, columns) of a scale's block."""

    source: Shard
    block: tuple[int, int]
    copied: Sequence[Tensor]
    scaled: Sequence[Scaled]

    @property
    def inputs(self) -> list[Path]:
        """Every file that is read, the shard itself first."""
        others = {item.scale_shard.path for item in self.scaled} - {self.source.path}
        return [self.source.path, *sorted(others)]


def block_size(folder: Path) -> tuple[int, int]:
    """`weight_block_size` of the quantization_config; InputError where there is none we understand."""
    config = read_json(folder / CONFIG)
    nested = config.get("text_config")
    quantization = config.get("quantization_config")
    if quantization is None and isinstance(nested, dict):
        quantization = nested.get("quantization_config")
    where = str(folder / CONFIG)
    if not isinstance(quantization, dict):
        raise InputError(
            "this checkpoint is not quantised: there is no quantization_config",
            where=where,
            hint="Serve it as it is, without conversion.",
        )
    kind = (quantization.get("quant_method"), quantization.get("fmt", "e4m3"))
    if kind != ("fp8", "e4m3"):
        raise InputError(f"quantisation {kind[0]} {kind[1]} is not understood", where=where, hint=_HINT)
    match quantization.get("weight_block_size"):
        case [int(rows), int(columns)] if rows > 0 and columns > 0:
            return rows, columns
    raise InputError("quantization_config names no weight_block_size of two numbers", where=where, hint=_HINT)


def make_recipes(shards: Sequence[Shard], block: tuple[int, int]) -> list[ShardRecipe]:
    """One recipe per shard; InputError, naming the tensor, for anything that is not understood."""
    homes = {tensor.name: shard for shard in shards for tensor in shard.tensors.values()}
    recipes = [_recipe(shard, homes, block) for shard in shards]
    if not any(recipe.scaled for recipe in recipes):
        raise InputError("there is no FP8 tensor to convert", where=str(shards[0].path.parent), hint=_HINT)
    return recipes


def _recipe(shard: Shard, homes: Mapping[str, Shard], block: tuple[int, int]) -> ShardRecipe:
    copied: list[Tensor] = []
    scaled: list[Scaled] = []
    for tensor in shard.tensors.values():
        if tensor.dtype in _PACKED_DTYPES or tensor.dtype not in DTYPE_BITS:
            raise _refuse(tensor, shard, f"type {tensor.dtype} is not understood")
        if _UNKNOWN_SUFFIX.search(tensor.name):
            raise _refuse(tensor, shard, "its name says a quantisation that is not understood")
        if tensor.name.endswith(SCALE_SUFFIX):
            weight = tensor.name.removesuffix(SCALE_SUFFIX)
            if weight not in homes or homes[weight].tensors[weight].dtype != FP8:
                raise _refuse(tensor, shard, "it is a scale without an FP8 weight")
        elif tensor.dtype == FP8:
            scaled.append(_scaled(tensor, shard, homes, block))
        else:
            copied.append(tensor)
    return ShardRecipe(shard, block, copied, scaled)


def _scaled(tensor: Tensor, shard: Shard, homes: Mapping[str, Shard], block: tuple[int, int]) -> Scaled:
    name = tensor.name + SCALE_SUFFIX
    if name not in homes:
        raise _refuse(tensor, shard, f"its scale {name} is in no shard")
    scale = homes[name].tensors[name]
    if scale.dtype not in _SCALE_DTYPES:
        raise _refuse(scale, homes[name], f"a scale of type {scale.dtype} is not understood")
    if len(tensor.shape) != 2:
        raise _refuse(tensor, shard, f"an FP8 tensor of shape {list(tensor.shape)} is not understood")
    expected = tuple(-(-size // step) for size, step in zip(tensor.shape, block, strict=True))
    if scale.shape != expected:
        why = f"its shape is {list(scale.shape)}; {list(tensor.shape)} in blocks of {list(block)} needs "
        raise _refuse(scale, homes[name], why + f"{list(expected)}")
    return Scaled(tensor, homes[name], scale)


def _refuse(tensor: Tensor, shard: Shard, why: str) -> InputError:
    return InputError(f"tensor {tensor.name}: {why}", where=str(shard.path), hint=_HINT)
