"""What kind of attention each layer has: it decides how much KV cache a token takes there.

Sources: the configuration and modeling files of transformers for the model types named here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

# full: all tokens are kept. sliding, chunked: those of a window. linear: a state of constant size. none: no
# attention. both: attention to all tokens, and a state beside it.
LayerType = Literal["full", "sliding", "chunked", "linear", "both", "none"]

_NAMES: dict[str, LayerType] = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "linear",
    "mamba": "linear",
    "mamba2": "linear",
    "recurrent": "linear",
    "conv": "linear",
    "hybrid": "both",
    "mlp": "none",
    "moe": "none",
}
_LETTERS: dict[str, LayerType] = {"M": "linear", "*": "full", "-": "none", "E": "none"}  # Nemotron-H
_GEMMA_PATTERN = {"gemma2": 2, "gemma3_text": 6}  # every n-th layer is full
_ALL_SLIDING = ("mistral", "mixtral", "phi3")


def layer_types(config: Mapping[str, Any], layers: int) -> tuple[LayerType, ...]:
    """One entry a layer. What the config does not state, or has in an unknown form, counts as full."""
    listed = (_listed(config, layers) or _by_rule(config, layers))[:layers]
    # With states alone a token would take no memory.
    if "linear" in listed and {"linear", "none"}.issuperset(listed):
        listed = []
    missing: list[LayerType] = ["full"] * (layers - len(listed))
    return (*listed, *missing)


def _listed(config: Mapping[str, Any], layers: int) -> list[LayerType]:
    listed = config.get("layer_types") or config.get("layers_block_type")
    if isinstance(listed, list):
        return [_NAMES.get(name, "full") if isinstance(name, str) else "full" for name in listed[:layers]]
    letters = config.get("hybrid_override_pattern")
    if isinstance(letters, str):
        return [_LETTERS.get(letter, "full") for letter in letters[:layers]]
    numbers = config.get("attn_type_list")  # MiniMax-Text-01
    if isinstance(numbers, list):
        return ["full" if number == 1 else "linear" for number in numbers[:layers]]
    if isinstance(blocks := config.get("block_configs"), list):
        return [_of_block(block) for block in blocks[:layers]]
    windows = config.get("hybrid_layer_pattern")  # MiMo-V2
    if isinstance(windows, list):
        return ["sliding" if number == 1 else "full" for number in windows[:layers]]
    kimi = config.get("linear_attn_config")
    full = kimi.get("full_attn_layers") if isinstance(kimi, dict) else None
    if isinstance(full, list):  # counted from 1
        return ["full" if layer + 1 in full else "linear" for layer in range(layers)]
    return []


def _of_block(block: Any) -> LayerType:
    """Nemotron-NAS leaves attention out, or has a linear layer; puzzles of Nemotron-H name the kind."""
    attention = block.get("attention") if isinstance(block, dict) else None
    if isinstance(attention, dict):
        return "none" if attention.get("no_op") or attention.get("replace_with_linear") else "full"
    return _NAMES.get(str(block.get("block_type")), "full") if isinstance(block, dict) else "full"


def _by_rule(config: Mapping[str, Any], layers: int) -> list[LayerType]:
    kind = str(config.get("model_type"))
    window = config.get("sliding_window")
    for key in ("full_attention_interval", "layer_group_size"):  # Qwen3-Next; Ling-2.5
        if isinstance(interval := config.get(key), int) and interval > 0:
            return _every(interval, "linear", layers)
    period, first = config.get("attn_layer_period"), config.get("attn_layer_offset")  # Jamba
    if isinstance(period, int) and period > 0:
        return ["full" if layer % period == first else "linear" for layer in range(layers)]
    if kind == "falcon_h1":
        return ["both"] * layers
    if kind == "llama4_text":
        return _every(4, "chunked", layers)  # each fourth layer has no rotary embedding and attends to all
    if kind in _GEMMA_PATTERN:
        pattern = config.get("sliding_window_pattern")
        return _every(pattern if isinstance(pattern, int) and pattern > 0 else _GEMMA_PATTERN[kind],
                      "sliding", layers)  # fmt: skip
    if kind in _ALL_SLIDING and window:
        return ["sliding"] * layers
    if config.get("use_sliding_window") and window:
        first = config.get("max_window_layers")
        full = first if isinstance(first, int) else 0
        return ["full" if layer < full else "sliding" for layer in range(layers)]
    return []


def _every(interval: int, others: LayerType, layers: int) -> list[LayerType]:
    """Each `interval`-th layer is full."""
    return [others if (layer + 1) % interval else "full" for layer in range(layers)]
