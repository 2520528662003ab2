"""What the layers of a model keep of the tokens of a request, from config.json; bytes follow in the engines.

A layer keeps keys and values of each token, or a state of constant size; sparse attention keeps an index
beside them. Sources: configuration classes of transformers 5.19 and of vLLM 0.33.0.
"""

from __future__ import annotations

from typing import Any, Literal

from headfirst.decide.frozen import Frozen
from headfirst.decide.model.config_keys import Keys
from headfirst.decide.model.layer_types import LayerType

StateKind = Literal["gdn", "kda", "mamba", "mamba2", "lightning", "conv"]


class KvHeads(Frozen):
    """What a layer keeps of one token: `heads` keys of `key_dim` and values of `value_dim` elements."""

    heads: int
    key_dim: int
    value_dim: int


class RecurrentState(Frozen):
    """What a layer of kind `linear` keeps of one request, however long it is.

    The last `conv_kernel` - 1 inputs of a convolution over `channels`, and `heads` matrices of `rows` by
    `columns` elements. Each of Mamba-2's `groups` adds two times `columns` channels. `dtype` is that of the
    matrices, by torch's name; "" where config.json does not state it.
    """

    kind: StateKind
    channels: int
    conv_kernel: int
    heads: int
    rows: int
    columns: int
    groups: int = 0
    dtype: str = ""


class SparseIndex(Frozen):
    """The index by which sparse attention selects tokens: a vector of `head_dim` a token in these `layers`.

    `heads`: of the query that is compared with it. `layers` count from 0.
    """

    heads: int
    head_dim: int
    layers: tuple[int, ...]


def full_kv(keys: Keys, plain: KvHeads) -> KvHeads | None:
    """Keys and values of the layers that keep all tokens, where they are not `plain` (Gemma-4, MiMo-V2)."""
    wide = keys.number("global_head_dim", 0)
    heads = keys.number("num_global_key_value_heads", plain.heads) if wide else plain.heads
    value_dim = wide or keys.number("v_head_dim", plain.value_dim)
    kv = KvHeads(heads=heads, key_dim=wide or plain.key_dim, value_dim=value_dim)
    return None if kv == plain else kv


def window_kv(keys: Keys, plain: KvHeads) -> KvHeads | None:
    """Keys and values of the layers with a window, where they are not those of the other layers."""
    key_dim = keys.number("swa_head_dim", plain.key_dim)
    value_dim = keys.number("swa_v_head_dim", 0) or keys.number("v_head_dim", key_dim)
    kv = KvHeads(
        heads=keys.number("swa_num_key_value_heads", plain.heads), key_dim=key_dim, value_dim=value_dim
    )
    return None if kv == (full_kv(keys, plain) or plain) else kv


def recurrent_state(keys: Keys, layer_types: tuple[LayerType, ...]) -> RecurrentState | None:
    """The state of the linear layers; None where there are none, or of a kind that is not known."""
    if {"linear", "both"}.isdisjoint(layer_types):
        return None
    for reader in (_delta_net, _kimi, _mamba, _mamba1, _short_convolution, _lightning):
        if state := reader(keys):
            return state
    return None


def _dtype(keys: Keys) -> str:
    value = keys.values.get("mamba_ssm_dtype") or keys.values.get("mamba_ssm_cache_dtype")
    return value if value in ("float32", "bfloat16", "float16") else ""


def _delta_net(keys: Keys) -> RecurrentState | None:
    """Qwen3-Next and Qwen3.5: gated delta net."""
    if not keys.number("linear_num_value_heads", 0):
        return None
    heads, rows = keys.number("linear_num_value_heads"), keys.number("linear_value_head_dim")
    columns = keys.number("linear_key_head_dim")
    return RecurrentState(
        kind="gdn",
        channels=2 * columns * keys.number("linear_num_key_heads") + rows * heads,
        conv_kernel=keys.number("linear_conv_kernel_dim"),
        heads=heads,
        rows=rows,
        columns=columns,
        dtype=_dtype(keys),
    )


def _kimi(keys: Keys) -> RecurrentState | None:
    """Kimi delta attention: queries, keys and values have a convolution each."""
    nested = keys.part("linear_attn_config")
    if nested is None or not nested.number("num_heads", 0):
        return None
    heads, size = nested.number("num_heads"), nested.number("head_dim")
    return RecurrentState(
        kind="kda",
        channels=3 * heads * size,
        conv_kernel=nested.number("short_conv_kernel_size", 4),
        heads=heads,
        rows=size,
        columns=size,
        dtype=_dtype(keys),
    )


def _mamba(keys: Keys) -> RecurrentState | None:
    """Mamba-2 as Nemotron-H, Granite-4, Bamba and Falcon-H1 name its sizes."""
    heads = keys.number("mamba_num_heads", 0)
    if not heads:
        return None
    rows = (
        keys.number("mamba_head_dim", 0)
        or keys.number("hidden_size") * keys.number("mamba_expand", 2) // heads
    )
    return RecurrentState(
        kind="mamba2",
        channels=heads * rows,
        conv_kernel=keys.number("conv_kernel", 4),
        heads=heads,
        rows=rows,
        columns=keys.number("ssm_state_size"),
        groups=keys.number("n_groups", 1),
        dtype=_dtype(keys),
    )


def _mamba1(keys: Keys) -> RecurrentState | None:
    """The first Mamba, as Jamba names its sizes: a row of the state for each channel."""
    if not keys.number("ssm_state_size", 0):
        return None
    channels = keys.number("hidden_size") * keys.number("mamba_expand", 2)
    return RecurrentState(
        kind="mamba",
        channels=channels,
        conv_kernel=keys.number("conv_kernel", 4),
        heads=channels,
        rows=1,
        columns=keys.number("ssm_state_size"),
        dtype=_dtype(keys),
    )


def _short_convolution(keys: Keys) -> RecurrentState | None:
    """LFM2: a convolution alone."""
    kernel = keys.number("conv_L_cache", 0)
    if not kernel:
        return None
    channels = keys.number("conv_dim", 0) or keys.number("hidden_size")
    return RecurrentState(kind="conv", channels=channels, conv_kernel=kernel, heads=0, rows=0, columns=0)


def _lightning(keys: Keys) -> RecurrentState | None:
    """MiniMax-Text-01 and Ling-2.5: a matrix a head."""
    size = keys.number("head_dim", 0)
    if not size or not (keys.values.get("attn_type_list") or keys.values.get("layer_group_size")):
        return None
    heads = keys.number("num_attention_heads")
    return RecurrentState(kind="lightning", channels=0, conv_kernel=1, heads=heads, rows=size, columns=size)


def sparse_index(keys: Keys, layers: int) -> SparseIndex | None:
    """The index of DeepSeek-V3.2, GLM-5 and MiniMax-M3; None without one."""
    nested = keys.part("sparse_attention_config")
    if nested is not None and (size := nested.number("sparse_index_dim", 0)):
        listed = nested.entries("sparse_attention_freq", layers) or [1] * layers
        heads = nested.number("sparse_num_index_heads", 1)
        return SparseIndex(heads=heads, head_dim=size, layers=_where(listed, 1))
    size = keys.number("index_head_dim", 0)
    if not size:
        return None
    # GLM-5.2: the others share the selection of an earlier layer.
    listed = keys.entries("indexer_types", layers) or ["full"] * layers
    return SparseIndex(heads=keys.number("index_n_heads"), head_dim=size, layers=_where(listed, "full"))


def _where(listed: list[Any], value: Any) -> tuple[int, ...]:
    return tuple(layer for layer, entry in enumerate(listed) if entry == value)


def compress_ratios(keys: Keys, layers: int) -> tuple[int, ...]:
    """Of each layer, how many tokens share an entry (DeepSeek-V4; 0: it has the window alone); else empty."""
    listed = keys.entries("compress_ratios", layers)
    if len(listed) < layers or not all(type(ratio) is int and 0 <= ratio <= 4096 for ratio in listed):
        return ()
    return tuple(listed)
