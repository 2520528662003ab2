"""Which quantised checkpoints can be converted to BF16, and how each names and lays out its scales.

The plan and the converter (weights/convert/) both read it here. Each of the functions at the end makes a
Format of one quant_method's quantization_config; what they do not understand they refuse with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from headfirst.common.quantization import MX_GROUP, SCHEMES, Scheme
from headfirst.common.safetensors_file import StoredTensor
from headfirst.common.untrusted import shown

NESTED = ("text_config", "llm_config", "language_config", "thinker_config")
"""Keys of the language model's config inside that of a model with vision or sound."""
GROUP = MX_GROUP
"""Values that share a scale of MXFP4; two of them make a byte."""

Layout = Literal["block", "row", "tensor"]
"""What one scale covers: a block of rows and columns, a row (an output channel), or the whole matrix."""


class NotConvertibleError(Exception):
    """This quantization_config is not understood; its text is the reason."""


@dataclass(frozen=True)
class Format:
    """How a checkpoint names and lays out the weights of one scheme.

    `kernel`: the scheme's name: "fp8" are e4m3 codes times a scale, "mxfp4" e2m1 codes times a power of two.
    `endings`: pairs of endings of a weight's name and of the name of its scale, which differ in no more.
    `block`: (rows, columns) of a scale whose layout is "block". `dropped`: endings of the names of tensors
    that a BF16 checkpoint has no use for: scales of activations and of the KV cache. `marked`: the weight's
    ending distinguishes a weight from other tensors of its type, and the result's name is without it.
    """

    kernel: Literal["fp8", "mxfp4"]
    endings: tuple[tuple[str, str], ...]
    scale_dtypes: tuple[str, ...]
    layouts: tuple[Layout, ...]
    block: tuple[int, int] | None = None
    dropped: tuple[str, ...] = ()
    marked: bool = False

    @property
    def scheme(self) -> Scheme:
        """The row of the table: bits, and types of the tensors."""
        return next(row for row in SCHEMES if row.name == self.kernel)

    def scale_names(self, weight: str) -> list[str]:
        """The names that the scale of this weight can have."""
        return [weight.removesuffix(old) + new for old, new in self.endings if weight.endswith(old)]

    def weight_name(self, scale: str) -> str | None:
        """The weight whose scale has this name; None where it is no scale's name."""
        return next((scale.removesuffix(new) + old for old, new in self.endings if scale.endswith(new)), None)

    def drops(self, name: str) -> bool:
        """Whether the result has no tensor for this one, which is no weight's scale."""
        return name.endswith(self.dropped)

    def is_weight(self, tensor: StoredTensor) -> bool:
        """Whether this is a quantised weight, by its type, and where the type is not enough by its name."""
        return tensor.dtype == self.scheme.dtype and (not self.marked or bool(self.scale_names(tensor.name)))

    def result_name(self, weight: str) -> str:
        """What the result calls this weight."""
        return weight.removesuffix(self.endings[0][0]) if self.marked else weight

    def result_bytes(self, tensor: StoredTensor) -> int:
        """Bytes in the result of this tensor of the checkpoint."""
        if self.weight_name(tensor.name) or self.drops(tensor.name):
            return 0
        factor = 16 // self.scheme.bits if self.is_weight(tensor) else 1
        return factor * (tensor.end - tensor.start)

    def covered(self, weight: Sequence[int], scale: Sequence[int]) -> tuple[int, int] | None:
        """(rows, columns) that each scale covers, from both shapes; None where they do not fit together.

        A weight of more than two dimensions is a row of matrices, each with scales of its own.
        """
        if len(weight) < 2:
            return None
        *lead, rows, columns = weight
        grids: list[tuple[tuple[int, int], list[list[int]]]] = []
        if "tensor" in self.layouts:
            grids.append(((rows, columns), [[*lead, 1, 1], *([] if lead else [[], [1]])]))
        if "row" in self.layouts and not lead:
            grids.append(((1, columns), [[rows, 1], [rows]]))
        if "block" in self.layouts and self.block:
            height, width = self.block
            grids.append((self.block, [[*lead, -(-rows // height), -(-columns // width)]]))
        return next((block for block, shapes in grids if list(scale) in shapes), None)


def config_parts(config: dict[str, Any]) -> list[dict[str, Any]]:
    """A config.json, and inside it the config of its language model, at most two deep (thinker_config)."""
    parts = [config]
    while len(parts) < 3:
        nested = next((part for key in NESTED if isinstance(part := parts[-1].get(key), dict)), None)
        if nested is None:
            break
        parts.append(nested)
    return parts


def stripped_config(config: dict[str, Any]) -> dict[str, Any]:
    """Without the keys of the source's quantisation, and with a type: gpt-oss has none, and SGLang takes FP16
    for none. The config itself is changed."""
    parts = config_parts(config)
    for part in parts:
        part.pop("quantization_config", None)
    if not any(key in part for part in parts for key in ("torch_dtype", "dtype")):
        config["torch_dtype"] = "bfloat16"
    return config


def quantization_of(config: dict[str, Any]) -> Any:
    """quantization_config of a config.json, its own or that of its language model; None where it has none."""
    quantizations = (part.get("quantization_config") for part in config_parts(config))
    return next((quantization for quantization in quantizations if quantization), None)


def read_format(quantization: Mapping[str, Any]) -> Format:
    """The format that a quantization_config describes; NotConvertibleError with the reason."""
    method = quantization.get("quant_method")
    reader = _READERS.get(method) if isinstance(method, str) else None
    if reader is None:
        raise NotConvertibleError(f"quantisation {shown(str(method))} is not understood")
    return reader(quantization)


# Static scales of activations, of the KV cache and of queries, as vLLM, llm-compressor and transformers
# call them. They state how to quantise at run time; a BF16 model has nothing to quantise.
_RUN_TIME = (
    *(".input_scale", ".output_scale", ".activation_scale", "_activation_scale"),
    *(".k_scale", ".v_scale", ".kv_scale", ".q_scale"),
)


def _fp8(config: Mapping[str, Any]) -> Format:
    """DeepSeek's blocks (also Qwen3, Kimi-K2, MiniMax, GLM-5), or one scale a tensor (Ministral-3)."""
    kind = config.get("fmt") or "e4m3"
    if kind not in ("e4m3", "float8_e4m3fn"):  # MiniMax-M2 writes the longer name
        raise NotConvertibleError(f"quantisation fp8 {shown(str(kind))} is not understood")
    scale_format = config.get("scale_fmt") or "float"
    if scale_format not in ("float", "ue8m0"):
        raise NotConvertibleError(f"scale_fmt {shown(str(scale_format))} is not understood")
    powers = ("F8_E8M0", "U8") if scale_format == "ue8m0" else ()
    match config.get("weight_block_size"):
        case None:
            return Format(
                "fp8",
                # The name of vLLM's own, and that of transformers.
                ((".weight", ".weight_scale"), ("", "_scale_inv")),
                ("F32", "BF16"),
                ("tensor",),
                dropped=_RUN_TIME,
            )
        case [int(rows), int(columns)] if rows > 0 and columns > 0:
            block = (rows, columns)
            # Despite its name it multiplies (README_WEIGHTS.md of DeepSeek-V3).
            return Format("fp8", (("", "_scale_inv"),), ("F32", "BF16", *powers), ("block",), block)
    raise NotConvertibleError("weight_block_size of quantization_config is not two numbers")


def _fbgemm(_config: Mapping[str, Any]) -> Format:
    """Llama-3.1-405B-Instruct-FP8: a scale for each row; activation_scale_ub bounds what is not stored."""
    return Format(
        "fp8", ((".weight", ".weight_scale"),), ("F32", "BF16"), ("row",), dropped=(".input_scale_ub",)
    )


def _compressed_tensors(config: Mapping[str, Any]) -> Format:
    """FP8 of llm-compressor (RedHatAI, GLM-4.5-FP8): a scale a channel, a tensor or a block."""
    form = config.get("format")
    if form not in ("float-quantized", "naive-quantized"):
        raise NotConvertibleError(f"compressed-tensors {shown(str(form))} is not understood")
    sparsity = config.get("sparsity_config") or {}
    if not isinstance(sparsity, dict) or sparsity.get("format", "dense") != "dense":
        raise NotConvertibleError("sparsity_config of compressed-tensors is not understood")
    if config.get("transform_config"):  # rotations that the engine undoes while it computes
        raise NotConvertibleError("transform_config of compressed-tensors is not understood")
    groups = config.get("config_groups")
    if not isinstance(groups, dict) or not groups:
        raise NotConvertibleError("compressed-tensors without config_groups is not understood")
    scales = [_group(group) for group in groups.values()]
    blocks = {block for _kind, block in scales if block}
    if len(blocks) > 1:
        raise NotConvertibleError("compressed-tensors with blocks of several sizes is not understood")
    layouts = tuple(layout for layout in ("tensor", "row", "block") if layout in dict(scales))
    return Format(
        "fp8",
        ((".weight", ".weight_scale"),),
        ("F32", "BF16"),
        layouts,
        next(iter(blocks), None),
        dropped=_RUN_TIME,
    )


def _group(group: Any) -> tuple[Layout, tuple[int, int] | None]:
    weights = group.get("weights") if isinstance(group, dict) else None
    if not isinstance(weights, dict):
        raise NotConvertibleError("a config group of compressed-tensors without weights is not understood")
    kind = (weights.get("type"), weights.get("num_bits"), weights.get("symmetric", True))
    if kind != ("float", 8, True):
        words = " ".join(str(word) for word in kind[:2]) + ("" if kind[2] is True else " with zero points")
        raise NotConvertibleError(f"compressed-tensors {shown(words)} is not understood")
    match weights.get("strategy"), weights.get("block_structure"):
        case ["tensor", None]:
            return "tensor", None
        case ["channel", None]:
            return "row", None
        case ["block", [int(rows), int(columns)]] if rows > 0 and columns > 0:
            return "block", (rows, columns)
    strategy = shown(str(weights.get("strategy")))
    raise NotConvertibleError(f"compressed-tensors FP8 with the strategy {strategy} is not understood")


def _mxfp4(_config: Mapping[str, Any]) -> Format:
    """gpt-oss: experts in groups of 32; attention, router and embeddings are BF16 already."""
    return Format("mxfp4", (("_blocks", "_scales"),), ("U8", "F8_E8M0"), (), marked=True)


_READERS = {
    "fp8": _fp8,
    "fbgemm_fp8": _fbgemm,
    "compressed-tensors": _compressed_tensors,
    "mxfp4": _mxfp4,
}
