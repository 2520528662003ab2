"""What to do with each tensor of a quantised checkpoint: copy it, dequantise it with its scale, or drop it.

Whatever is not understood is refused with the tensor's name: a guess would serve a broken model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

from headfirst.common.convertible import (
    GROUP,
    Format,
    NotConvertibleError,
    quantization_of,
    read_format,
)
from headfirst.common.errors import InputError
from headfirst.common.safetensors_file import DTYPE_BITS, SMALL_FLOATS, SafetensorsFile, StoredTensor
from headfirst.node.weights.proof.checkpoint_check import CONFIG, read_json

_SCALE_NAME = re.compile(
    r"[._](weight|input|activation)_(scales?(_inv|_\d+|_ub)?|packed|zero_point|shape|g_idx|global_scale)$"
    r"|\.(scales?|qweight|qzeros|g_idx)$|_(blocks|scale_inv|scales)$"
)
"""Names that only quantised checkpoints have, whatever the format."""
_HINT = "docs/weights.md lists the formats that can be converted; else take a BF16 checkpoint."


@dataclass(frozen=True)
class Scaled:
    """A quantised tensor, the shard that holds its scale, and the scale.

    `block` is (rows, columns) of what one scale covers; `name` and `shape` are the result's.
    """

    tensor: StoredTensor
    scale_shard: SafetensorsFile
    scale: StoredTensor
    block: tuple[int, int]
    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ShardRecipe:
    """One shard's work."""

    source: SafetensorsFile
    format: Format
    copied: Sequence[StoredTensor]
    scaled: Sequence[Scaled]

    @property
    def inputs(self) -> list[Path]:
        """Every file that is read, the shard itself first."""
        others = {item.scale_shard.path for item in self.scaled} - {self.source.path}
        return [self.source.path, *sorted(others)]


def format_of(folder: Path) -> Format:
    """The format of the checkpoint in `folder`; InputError where its config.json names none we understand."""
    where = str(folder / CONFIG)
    quantization = quantization_of(read_json(folder / CONFIG))
    if not isinstance(quantization, dict):
        raise InputError(
            "this checkpoint is not quantised: there is no quantization_config",
            where=where,
            hint="Serve it as it is, without conversion.",
        )
    try:
        return read_format(quantization)
    except NotConvertibleError as error:
        raise InputError(str(error), where=where, hint=_HINT) from None


def scale_homes(weight_map: Mapping[str, str], form: Format) -> dict[str, frozenset[str]]:
    """Which other shards each shard needs, because they hold scales of its weights.

    `weight_map` is the index: shard by tensor name. So this is known, and what is not understood is refused
    with the tensor's name (InputError), before any weight has arrived. Whether a weight is quantised and
    lacks its scale only its shard's header shows: make_recipe refuses that.
    """
    homes: dict[str, set[str]] = {shard: set() for shard in weight_map.values()}
    for name, home in weight_map.items():
        weight = form.weight_name(name)
        if weight is not None:
            if weight not in weight_map:
                raise _refuse(name, home, "it is a scale without a weight")
            homes[weight_map[weight]].add(home)
        elif _is_unknown(name, form):
            raise _refuse(name, home, "its name contains an unknown quantisation")
        elif form.result_name(name) != name and form.result_name(name) in weight_map:
            raise _refuse(name, home, f"{form.result_name(name)} is there too")
    return {shard: frozenset(others - {shard}) for shard, others in homes.items()}


def outputs(weight_map: Mapping[str, str], form: Format) -> frozenset[str]:
    """The shards of which the result has something left: they hold more than scales."""
    return frozenset(
        shard for name, shard in weight_map.items() if form.weight_name(name) is None and not form.drops(name)
    )


def make_recipe(
    shard: SafetensorsFile, scale_shards: Sequence[SafetensorsFile], form: Format
) -> ShardRecipe | None:
    """What to do with `shard`; `scale_shards` are those that `scale_homes` names for it.

    None where nothing is left of it, since it holds only scales. InputError, naming the tensor, for anything
    that is not understood.
    """
    homes = {tensor.name: home for home in (shard, *scale_shards) for tensor in home.tensors.values()}
    copied: list[StoredTensor] = []
    scaled: list[Scaled] = []
    for tensor in shard.tensors.values():
        where = str(shard.path)
        if form.weight_name(tensor.name) is not None or form.drops(tensor.name):
            continue
        scale_name = next((name for name in form.scale_names(tensor.name) if name in homes), None)
        if form.is_weight(tensor):
            scaled.append(_scaled(tensor, shard, homes, scale_name, form))
        elif tensor.dtype in (form.scheme.dtype, *SMALL_FLOATS) or tensor.dtype not in DTYPE_BITS:
            raise _refuse(tensor.name, where, f"type {tensor.dtype} is not understood")
        elif _is_unknown(tensor.name, form):
            raise _refuse(tensor.name, where, "its name contains an unknown quantisation")
        elif scale_name is not None:
            why = f"it is a scale, but its weight is {tensor.dtype} and not {form.scheme.dtype}"
            raise _refuse(scale_name, str(homes[scale_name].path), why)
        else:
            copied.append(tensor)
    return ShardRecipe(shard, form, copied, scaled) if copied or scaled else None


def _is_unknown(name: str, form: Format) -> bool:
    has_name = form.marked and bool(form.scale_names(name))
    return not has_name and not form.drops(name) and bool(_SCALE_NAME.search(name))


def _scaled(
    tensor: StoredTensor,
    shard: SafetensorsFile,
    homes: Mapping[str, SafetensorsFile],
    scale_name: str | None,
    form: Format,
) -> Scaled:
    where = str(shard.path)
    if scale_name is None:
        expected = " or ".join(form.scale_names(tensor.name)) or "(its name has no ending of a weight)"
        raise _refuse(tensor.name, where, f"its scale {expected} is in no shard")
    home = homes[scale_name]
    scale = home.tensors[scale_name]
    if scale.dtype not in form.scale_dtypes:
        raise _refuse(scale_name, str(home.path), f"a scale of type {scale.dtype} is not understood")
    name = form.result_name(tensor.name)
    if form.kernel == "mxfp4":
        if len(tensor.shape) != 4 or 2 * tensor.shape[3] != GROUP or scale.shape != tensor.shape[:3]:
            shapes = f"{list(tensor.shape)} with scales {list(scale.shape)}"
            raise _refuse(tensor.name, where, f"MXFP4 of shape {shapes} is not understood")
        experts, rows, groups, _size = tensor.shape
        return Scaled(tensor, home, scale, (1, GROUP), name, (experts, groups * GROUP, rows))
    if len(tensor.shape) < 2 or prod(tensor.shape[:-2]) == 0:
        raise _refuse(tensor.name, where, f"an FP8 tensor of shape {list(tensor.shape)} is not understood")
    block = form.covered(tensor.shape, scale.shape)
    if block is None:
        kinds = " or ".join(f"{form.block}" if kind == "block" else kind for kind in form.layouts)
        why = f"its shape is {list(scale.shape)}, which {list(tensor.shape)} with a scale for each {kinds} "
        raise _refuse(scale_name, str(home.path), why + "does not have")
    return Scaled(tensor, home, scale, block, name, tensor.shape)


def _refuse(tensor: str, where: str, why: str) -> InputError:
    return InputError(f"tensor {tensor}: {why}", where=where, hint=_HINT)
