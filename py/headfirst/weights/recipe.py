"""What to do with each tensor of an FP8 checkpoint: copy it, or dequantise it with its scale from any shard.

Whatever is not understood is refused with the tensor's name: a guess would serve a broken model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headfirst.errors import InputError
from headfirst.untrusted import shown
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
        named = shown(f"{kind[0]} {kind[1]}")
        raise InputError(f"quantisation {named} is not understood", where=where, hint=_HINT)
    match quantization.get("weight_block_size"):
        case [int(rows), int(columns)] if rows > 0 and columns > 0:
            return rows, columns
    raise InputError("quantization_config names no weight_block_size of two numbers", where=where, hint=_HINT)


def scale_homes(weight_map: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """Which other shards each shard needs, because they hold scales of its weights.

    `weight_map` is the index: shard by tensor name. So this is known, and what is not understood is refused
    with the tensor's name (InputError), before any weight has arrived. Whether a weight is FP8 and lacks its
    scale only its shard's header can say: make_recipe refuses that.
    """
    homes: dict[str, set[str]] = {shard: set() for shard in weight_map.values()}
    for name, home in weight_map.items():
        if _UNKNOWN_SUFFIX.search(name):
            raise _refuse(name, home, "its name says a quantisation that is not understood")
        if name.endswith(SCALE_SUFFIX):
            weight = name.removesuffix(SCALE_SUFFIX)
            if weight not in weight_map:
                raise _refuse(name, home, "it is a scale without a weight")
            homes[weight_map[weight]].add(home)
    return {shard: frozenset(others - {shard}) for shard, others in homes.items()}


def make_recipe(shard: Shard, scale_shards: Sequence[Shard], block: tuple[int, int]) -> ShardRecipe | None:
    """What to do with `shard`; `scale_shards` are those that `scale_homes` names for it.

    None where nothing is left of it, since it holds only scales. InputError, naming the tensor, for anything
    that is not understood.
    """
    homes = {tensor.name: home for home in (shard, *scale_shards) for tensor in home.tensors.values()}
    copied: list[Tensor] = []
    scaled: list[Scaled] = []
    for tensor in shard.tensors.values():
        where = str(shard.path)
        scale_home = homes.get(tensor.name + SCALE_SUFFIX)
        if tensor.dtype in _PACKED_DTYPES or tensor.dtype not in DTYPE_BITS:
            raise _refuse(tensor.name, where, f"type {tensor.dtype} is not understood")
        if _UNKNOWN_SUFFIX.search(tensor.name):
            raise _refuse(tensor.name, where, "its name says a quantisation that is not understood")
        if tensor.dtype == FP8:
            scaled.append(_scaled(tensor, shard, scale_home, block))
        elif scale_home is not None:
            why = f"it is a scale, but its weight is {tensor.dtype} and not {FP8}"
            raise _refuse(tensor.name + SCALE_SUFFIX, str(scale_home.path), why)
        elif not tensor.name.endswith(SCALE_SUFFIX):
            copied.append(tensor)
    return ShardRecipe(shard, block, copied, scaled) if copied or scaled else None


def _scaled(tensor: Tensor, shard: Shard, home: Shard | None, block: tuple[int, int]) -> Scaled:
    name, where = tensor.name + SCALE_SUFFIX, str(shard.path)
    if home is None:
        raise _refuse(tensor.name, where, f"its scale {name} is in no shard")
    scale = home.tensors[name]
    if scale.dtype not in _SCALE_DTYPES:
        raise _refuse(name, str(home.path), f"a scale of type {scale.dtype} is not understood")
    if len(tensor.shape) != 2:
        raise _refuse(tensor.name, where, f"an FP8 tensor of shape {list(tensor.shape)} is not understood")
    expected = tuple(-(-size // step) for size, step in zip(tensor.shape, block, strict=True))
    if scale.shape != expected:
        why = f"its shape is {list(scale.shape)}; {list(tensor.shape)} in blocks of {list(block)} needs "
        raise _refuse(name, str(home.path), why + f"{list(expected)}")
    return Scaled(tensor, home, scale)


def _refuse(tensor: str, where: str, why: str) -> InputError:
    return InputError(f"tensor {tensor}: {why}", where=where, hint=_HINT)
