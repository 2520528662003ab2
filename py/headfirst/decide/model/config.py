"""config.json to a Checkpoint: Hugging Face's key names, those of other families, and nested configs.

config.json comes from a hub or a folder: every value is checked before it is used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from headfirst.common import quantization as schemes
from headfirst.common.convertible import config_parts, quantization_of
from headfirst.common.errors import InputError
from headfirst.common.safetensors_file import SMALL_FLOATS, StoredTensor
from headfirst.common.untrusted import device_name, integer
from headfirst.decide.model import quantization, vision
from headfirst.decide.model.checkpoint import Checkpoint, LinearAttention, Mla, Moe, Shard
from headfirst.decide.model.layer_types import layer_types
from headfirst.decide.model.measured import measure
from headfirst.decide.model.quantization import Quantization

_VISION = ("vision_config", "visual", "audio_config", "vision_tower", "mm_vision_tower")
# Other families' names of a key: ChatGLM, Hunyuan, Mixtral, gpt-oss, Gemma-4, GPT-2.
_ALIASES = {
    "hidden_size": ("n_embd", "d_model"),
    "intermediate_size": ("ffn_hidden_size", "n_inner"),
    "num_hidden_layers": ("num_layers", "n_layer"),
    "num_attention_heads": ("n_head",),
    "num_key_value_heads": ("multi_query_group_num", "num_kv_heads"),
    "head_dim": ("kv_channels", "attention_head_dim"),
    "max_position_embeddings": ("seq_length", "max_sequence_length", "n_positions"),
    "n_routed_experts": ("num_experts", "num_local_experts", "moe_num_experts"),
    "num_experts_per_tok": (
        "num_experts_per_token",
        "moe_topk",
        "experts_per_token",
        "top_k_experts",
        "moe_k",
    ),
    "n_shared_experts": ("num_shared_expert", "moe_num_shared_experts"),
    "moe_intermediate_size": ("expert_ffn_hidden_size",),
    "num_nextn_predict_layers": ("mtp_num_hidden_layers",),
}
_BY_LAYER = ("n_routed_experts", "num_experts_per_tok", "n_shared_experts", "moe_intermediate_size")
# The plan counts tensors layer by layer and tries numbers of ranks up to the heads.
_LIMITS = {"num_hidden_layers": 4096, "num_nextn_predict_layers": 64, "num_attention_heads": 4096}
_LARGEST = 2**31
# Tensors of these types hold quantised weights.
_PACKED = (*SMALL_FLOATS, "I8", "U8", "I32", "U32")


@dataclass(frozen=True)
class Weights:
    """The weight files: `tensors` are those of each header, empty where no header was read."""

    total_bytes: int
    shards: tuple[Shard, ...]
    tensors: Sequence[Sequence[StoredTensor]] = ()


def from_config(
    config: Mapping[str, Any],
    *,
    id: str,
    revision: str | None,
    weights: Weights,
    source: str,
    where: str,
    note: str | None = None,
    quantization_config: Mapping[str, Any] | None = None,
    sentence_transformers: bool = False,
) -> Checkpoint:
    """Describe a checkpoint from its config.json and its weight files.

    `quantization_config` is hf_quant_config.json's content, for models whose config.json has none;
    `sentence_transformers` whether there is a modules.json. Raises InputError naming the missing key, with
    `where` as the place.
    """
    architectures = config.get("architectures")
    if not isinstance(architectures, list) or not architectures:
        raise InputError("config.json names no architecture.", where=where)
    keys = _Keys(_language_model(config), where)
    layers = keys.number("num_hidden_layers")
    quantized = quantization.read(
        quantization_of(dict(config)) or quantization_config,
        where,
    )
    sizes = measure(weights.tensors, layers, quantized.conversion if quantized else None)
    if sizes.by_dtype and not any(name in sizes.by_dtype for name in _PACKED):
        quantized = None  # a config left over after a conversion
    heads, hidden = keys.number("num_attention_heads"), keys.number("hidden_size")
    dense_width = keys.number("intermediate_size_mlp", 0)  # Llama-4's; intermediate_size is the experts'
    moe = _moe(keys, layers)
    return Checkpoint(
        id=id,
        revision=revision,
        architecture=device_name(architectures[0], what="the architecture", where=where, limit=128),
        dtype=_dtype(quantized, sizes.by_dtype, keys.values),
        quantization=quantized,
        weight_block_size=quantized.block if quantized else None,
        hidden_size=hidden,
        intermediate_size=dense_width or keys.number("intermediate_size", 4 * hidden),
        layers=layers,
        nextn_layers=keys.number("num_nextn_predict_layers", 0),
        attention_heads=heads,
        kv_heads=keys.number("num_key_value_heads", heads),
        head_dim=keys.number("head_dim", max(1, hidden // heads)),
        attention_bias=bool(keys.values.get("attention_bias")),
        qk_norm=bool(keys.values.get("use_qk_norm")),
        vocab_size=keys.number("padded_vocab_size", 0) or keys.number("vocab_size"),
        tied_embeddings=_tied(config, keys.values),
        max_context=keys.number("max_position_embeddings"),
        layer_types=layer_types(keys.values, layers),
        sliding_window=keys.number("sliding_window", 0) or keys.number("attention_chunk_size", 0) or None,
        mla=_mla(keys),
        moe=moe,
        linear_attention=_linear_attention(keys),
        vision=any(config.get(key) for key in _VISION),
        vision_parameters=vision.parameters(config, hidden),
        sentence_transformers=sentence_transformers,
        remote_code="auto_map" in config,
        total_bytes=weights.total_bytes,
        bytes_by_dtype=sizes.by_dtype,
        bytes_by_part=sizes.by_part,
        bf16_bytes_by_part=sizes.bf16_by_part if quantized else {},
        shards=weights.shards,
        source=source,
        note=note,
    )


@cache
def _defaults() -> dict[str, dict[str, Any]]:
    text = files("headfirst.decide.model").joinpath("config_defaults.json").read_text(encoding="utf-8")
    defaults: dict[str, dict[str, Any]] = json.loads(text)
    return defaults


def _language_model(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The keys of the language model, with the defaults of its model_type for those that are left out."""
    config = config_parts(dict(config))[-1]
    kind, blocks = config.get("model_type"), config.get("layers_block_type")
    if isinstance(blocks, list):  # Nemotron-H lists its layers instead of counting them
        config = {"num_hidden_layers": len(blocks), **config}
    return {**_defaults().get(kind, {}), **config} if isinstance(kind, str) else config


class _Keys:
    """Numbers of a config by Hugging Face's name of the key, whatever the family calls it."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values = values
        self._where = where

    def number(self, key: str, default: int | None = None) -> int:
        """The value, at least 1; of Hunyuan's lists with a value for each layer the largest. Without
        `default` the key must be there."""
        names = (key, *_ALIASES.get(key, ()))
        value = next((self.values[name] for name in names if self.values.get(name) is not None), None)
        if key in _BY_LAYER and isinstance(value, list) and len(value) <= _LIMITS["num_hidden_layers"]:
            value = max((item for item in value if isinstance(item, int)), default=0)
        if default is not None and not value:
            return default
        if not isinstance(value, int):
            raise InputError(
                f"config.json has no usable {key!r}, which the plan needs.",
                where=self._where,
                hint="Check on the model's page that it is a decoder-only language model.",
            )
        return integer(
            value,
            what=f"{key} in config.json",
            where=self._where,
            low=1,
            high=_LIMITS.get(key, _LARGEST),
        )


def _mla(keys: _Keys) -> Mla | None:
    if not keys.number("kv_lora_rank", 0):
        return None
    return Mla(
        q_lora_rank=keys.number("q_lora_rank", 0) or None,
        kv_lora_rank=keys.number("kv_lora_rank"),
        qk_nope_head_dim=keys.number("qk_nope_head_dim"),
        qk_rope_head_dim=keys.number("qk_rope_head_dim"),
        v_head_dim=keys.number("v_head_dim"),
        index_heads=keys.number("index_n_heads", 0),
        index_head_dim=keys.number("index_head_dim", 0),
    )


def _moe(keys: _Keys, layers: int) -> Moe | None:
    experts = keys.number("n_routed_experts", 0)
    if experts < 2:  # Hunyuan's dense models have one
        return None
    # Mixtral, gpt-oss, MiniMax and Llama-4 have no width of their own for dense layers.
    width = keys.number("moe_intermediate_size", 0) or keys.number("intermediate_size")
    count = keys.number("n_shared_experts", 0)
    shared = keys.number("shared_expert_intermediate_size", 0) or count * width
    if keys.values.get("model_type") == "llama4_text":
        count, shared = 1, width
    return Moe(
        experts=experts,
        experts_per_token=keys.number("num_experts_per_tok", 1),
        shared_experts=count or bool(shared),
        intermediate_size=width,
        shared_intermediate_size=shared,
        dense_layers=_dense_layers(keys, layers),
    )


def _dense_layers(keys: _Keys, layers: int) -> tuple[int, ...]:
    """Layers without experts: at the front, all but each n-th, or listed."""
    first = keys.number("first_k_dense_replace", 0) or keys.number("moe_layer_num_skipped", 0)
    step = keys.number("decoder_sparse_step", 0) or keys.number("interleave_moe_layer_step", 1)
    listed = keys.values.get("mlp_only_layers")
    only = listed if isinstance(listed, list) and len(listed) <= layers else []
    return tuple(layer for layer in range(layers) if layer < first or layer in only or (layer + 1) % step)


def _linear_attention(keys: _Keys) -> LinearAttention | None:
    if not keys.number("linear_num_value_heads", 0):
        return None
    return LinearAttention(
        key_heads=keys.number("linear_num_key_heads"),
        value_heads=keys.number("linear_num_value_heads"),
        key_head_dim=keys.number("linear_key_head_dim"),
        value_head_dim=keys.number("linear_value_head_dim"),
        conv_kernel=keys.number("linear_conv_kernel_dim"),
    )


def _tied(config: Mapping[str, Any], language_model: Mapping[str, Any]) -> bool:
    outer = config.get("tie_word_embeddings")
    return bool(language_model.get("tie_word_embeddings", False) if outer is None else outer)


def _dtype(quantized: Quantization | None, by_dtype: Mapping[str, int], config: Mapping[str, Any]) -> str:
    """What the tensors really are; where no header was read, what config.json states."""
    row = schemes.find(quantized.scheme) if quantized else None
    other_fp8 = row is not None and row.dtype == "F8_E4M3" and row.name != "fp8"  # MXFP8
    fp8 = by_dtype.get("F8_E4M3", 0)
    if fp8 > sum(by_dtype.get(name, 0) for name in _PACKED if name != "F8_E4M3") and not other_fp8:
        return "fp8"
    if quantized and (by_dtype or quantized.scheme != "fp8"):
        return quantized.method
    if quantized:
        return "fp8"
    if by_dtype:
        largest = max(by_dtype, key=lambda name: by_dtype[name])
    else:
        named = str(config.get("torch_dtype") or config.get("dtype") or "")
        largest = {"float16": "F16", "float32": "F32"}.get(named, "BF16")
    return {"BF16": "bf16", "F16": "fp16", "F32": "fp32", "I8": "int8"}.get(largest, largest.lower())
