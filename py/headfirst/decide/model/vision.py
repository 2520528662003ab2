"""Parameters of the vision towers of known models, from the dimensions in their vision_config.

Each function follows the modeling file of transformers (Kimi-K2.5: the model's own) of that model type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_LARGEST, _LARGEST_LIST = 2**20, 64


def parameters(config: Mapping[str, Any], text_hidden: int) -> int:
    """Elements of the tower with its projector; 0 for a kind that is not known, or without dimensions.

    `config` is the whole config.json, `text_hidden` the width of the language model.
    """
    vision = config.get("vision_config")
    count = _KINDS.get(str(config.get("model_type")))
    if count is None or not isinstance(vision, dict):
        return 0
    try:
        return int(count({key: value for key, value in vision.items() if _is_size(value)}, text_hidden))
    except (KeyError, TypeError, ValueError):
        return 0


def _is_size(value: Any) -> bool:
    """A dimension, or a short list of such."""
    if isinstance(value, list):
        return len(value) <= _LARGEST_LIST and all(item == 0 or _is_size(item) for item in value)
    return type(value) is int and 0 < value <= _LARGEST


def _block(hidden: int, intermediate: int) -> int:
    """A layer with biases: fused or separate q, k, v, the output, two norms with bias, an MLP of two."""
    attention = 4 * (hidden * hidden + hidden)
    return attention + 2 * 2 * hidden + 2 * hidden * intermediate + intermediate + hidden


def _merger(width: int, norm: int, out: int) -> int:
    """Norm, then two linear layers with biases: Qwen's and Kimi's patch mergers."""
    return 2 * norm + width * width + width + width * out + out


def _qwen3(vision: dict[str, Any], text_hidden: int) -> Any:
    hidden, merge = vision["hidden_size"], vision["spatial_merge_size"] ** 2
    patch = vision["in_channels"] * vision["temporal_patch_size"] * vision["patch_size"] ** 2
    width, out = hidden * merge, vision["out_hidden_size"]
    deep = len(vision.get("deepstack_visual_indexes", ()))
    return (
        patch * hidden + hidden
        + vision["num_position_embeddings"] * hidden
        + vision["depth"] * _block(hidden, vision["intermediate_size"])
        + _merger(width, hidden, out)
        + deep * _merger(width, width, out)
    )  # fmt: skip


def _siglip(vision: dict[str, Any], text_hidden: int) -> Any:
    hidden = vision["hidden_size"]
    patches = (vision["image_size"] // vision["patch_size"]) ** 2
    return (
        3 * vision["patch_size"] ** 2 * hidden + hidden
        + patches * hidden
        + vision["num_hidden_layers"] * _block(hidden, vision["intermediate_size"])
        + 2 * hidden
        + hidden * text_hidden + hidden  # Gemma-3's projector and its norm
    )  # fmt: skip


def _pixtral(vision: dict[str, Any], text_hidden: int) -> Any:
    hidden, merge = vision["hidden_size"], 2**2
    layer = 4 * hidden * hidden + 3 * hidden * vision["intermediate_size"] + 2 * hidden
    projector = hidden + merge * hidden * hidden + hidden * text_hidden + text_hidden * text_hidden
    return 3 * vision["patch_size"] ** 2 * hidden + hidden + vision["num_hidden_layers"] * layer + projector


def _kimi(vision: dict[str, Any], text_hidden: int) -> Any:
    hidden = vision["vt_hidden_size"]
    rows, columns = vision["merge_kernel_size"]
    positions = vision["init_pos_emb_height"] * vision["init_pos_emb_width"]
    return (
        3 * vision["patch_size"] ** 2 * hidden + hidden
        + positions * hidden
        + vision["vt_num_hidden_layers"] * _block(hidden, vision["vt_intermediate_size"])
        + 2 * hidden
        + _merger(hidden * rows * columns, hidden, text_hidden)
    )  # fmt: skip


def _llama4(vision: dict[str, Any], text_hidden: int) -> Any:
    hidden, wide = vision["hidden_size"], vision["intermediate_size"]
    positions = (vision["image_size"] // vision["patch_size"]) ** 2 + 1
    adapter = wide * vision["projector_input_dim"]
    adapter += vision["projector_input_dim"] * vision["projector_output_dim"]
    return (
        3 * vision["patch_size"] ** 2 * hidden
        + hidden + positions * hidden + 4 * hidden
        + vision["num_hidden_layers"] * _block(hidden, wide)
        + adapter + vision["vision_output_dim"] * text_hidden
    )  # fmt: skip


_KINDS: dict[str, Callable[[dict[str, Any], int], Any]] = {
    "qwen3_vl": _qwen3,
    "qwen3_vl_moe": _qwen3,
    "qwen3_5": _qwen3,
    "qwen3_5_moe": _qwen3,
    "gemma3": _siglip,
    "mistral3": _pixtral,
    "kimi_k25": _kimi,
    "llama4": _llama4,
}
