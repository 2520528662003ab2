"""config.json to a Checkpoint: Hugging Face's key names, those of other families, and nested configs.

config.json comes from a hub or a folder: every value is checked before it is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headfirst.common import quantization as schemes
from headfirst.common.convertible import quantization_of
from headfirst.common.errors import InputError, located
from headfirst.common.safetensors_file import SMALL_FLOATS, StoredTensor
from headfirst.common.untrusted import device_name
from headfirst.decide.model import caches, drafting, quantization, vision
from headfirst.decide.model.caches import KvHeads
from headfirst.decide.model.checkpoint import Checkpoint, Mla, Moe, Shard
from headfirst.decide.model.config_keys import Keys, language_model
from headfirst.decide.model.layer_types import layer_types
from headfirst.decide.model.measured import Measured, Part, measure
from headfirst.decide.model.quantization import Quantization

_VISION = ("vision_config", "visual", "audio_config", "vision_tower", "mm_vision_tower")
_LARGEST_FACTOR = 10_000
# Sizes of states beside attention, by their names in configs.
_STATES = ("mamba_d_state", "mamba_expand", "mamba_num_heads", "mamba_n_heads", "ssm_state_size", "ssm_cfg")
_UNKNOWN_STATES = (
    "config.json does not state in a known way which layers keep a state: each counts as attention"
)
# Tensors of these types hold quantised weights.
_PACKED = (*SMALL_FLOATS, "I8", "U8", "I32", "U32")


@dataclass(frozen=True)
class WeightFiles:
    """The weight files: `tensors` are those of each header, empty where no header was read.

    `measured` is what an earlier reading of the headers gave.
    """

    total_bytes: int
    shards: tuple[Shard, ...]
    tensors: Sequence[Sequence[StoredTensor]] = ()
    measured: Measured | None = None


@located(hint="Its publisher has to correct it: take another revision (model_revision), or another model.")
def from_config(
    config: Mapping[str, Any],
    *,
    id: str,
    revision: str | None,
    weights: WeightFiles,
    source: str,
    where: str,
    note: str | None = None,
    quantization_config: Mapping[str, Any] | None = None,
    sentence_transformers: bool = False,
    chat_template: bool | None = None,
) -> Checkpoint:
    """Describe a checkpoint from its config.json and its weight files.

    `quantization_config` is hf_quant_config.json's content: it is used where config.json has none of its own,
    and before that of the language model inside it, as the engines do. `sentence_transformers`: there is a
    modules.json. Raises InputError naming the missing key, with `where` as the place.
    """
    architectures = config.get("architectures")
    if not isinstance(architectures, list) or not architectures:
        raise InputError("config.json names no architecture.", where=where)
    config = drafting.flat(config)
    keys = Keys(language_model(config), where)
    layers = keys.number("num_hidden_layers")
    quantized = quantization.read(
        config.get("quantization_config") or quantization_config or quantization_of(dict(config)),
        where,
        experts=keys.values.get("expert_dtype"),
    )
    fused_qkv = keys.values.get("attention_projection_layout") == "fused_qkv"
    if quantized and fused_qkv:  # each part has scales of its own, which are not those of its rows
        why = "the scales of its fused attention projections are those of their parts"
        quantized = quantized.model_copy(update={"conversion": None, "obstacle": why})
    conversion = quantized.conversion if quantized else None
    sizes = weights.measured or measure(weights.tensors, layers, conversion)
    if sizes.by_dtype and not any(name in sizes.by_dtype for name in _PACKED):
        quantized = None  # a config left over after a conversion
    heads, hidden = keys.number("num_attention_heads"), keys.number("hidden_size")
    # Llama-4's and MiniMax-M3's; intermediate_size is the experts'.
    dense_width = keys.number("intermediate_size_mlp", 0) or keys.number("dense_intermediate_size", 0)
    moe, mla = _moe(keys, layers), _mla(keys)
    types = layer_types(keys.values, layers)
    if set(types) == {"none"}:
        raise InputError("config.json has no layer with attention or a state.", where=where)
    if {"linear", "both"}.isdisjoint(types) and any(keys.values.get(name) for name in _STATES):
        note = f"{note}; {_UNKNOWN_STATES}" if note else _UNKNOWN_STATES
    kv_heads = _kv_heads(keys, layers, heads)
    head_dim = keys.number("head_dim", max(1, hidden // heads))
    plain = KvHeads(heads=kv_heads, key_dim=head_dim, value_dim=head_dim)
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
        nextn_layers=_draft_layers(keys, sizes),
        attention_heads=heads,
        other_heads=_other_heads(keys, layers, heads),
        kv_heads=kv_heads,
        head_dim=head_dim,
        attention_bias=bool(keys.values.get("attention_bias")),
        qk_norm=bool(keys.values.get("use_qk_norm")),
        fused_qkv=fused_qkv,
        vocab_size=keys.number("padded_vocab_size", 0) or keys.number("vocab_size"),
        tied_embeddings=_tied(config, keys.values),
        max_context=_context(keys),
        short_context=_short_context(keys),
        layer_types=types,
        shared_kv_layers=min(keys.number("num_kv_shared_layers", 0), layers - 1),
        sliding_window=keys.number("sliding_window", 0) or None,
        mla=mla,
        moe=moe,
        full_kv=None if mla else caches.full_kv(keys, plain),
        window_kv=None if mla else caches.window_kv(keys, plain),
        recurrent=caches.recurrent_state(keys, types),
        index=caches.sparse_index(keys, layers),
        compress_ratios=caches.compress_ratios(keys, layers),
        vision=any(config.get(key) for key in _VISION),
        vision_parameters=vision.parameters(config, hidden),
        vision_tower=_vision_tower(keys.of(config)),
        vision_heads=_vision_heads(keys.of(config)),
        sentence_transformers=sentence_transformers,
        chat_template=chat_template,
        drafting=drafting.read(config, keys, (tensor for shard in weights.tensors for tensor in shard)),
        remote_code="auto_map" in config,
        total_bytes=weights.total_bytes,
        bytes_by_dtype=sizes.by_dtype,
        bytes_by_part=sizes.by_part,
        bf16_bytes_by_part=sizes.bf16_by_part if quantized else {},
        shards=weights.shards,
        source=source,
        note=note,
    )


def _vision_tower(keys: Keys) -> tuple[int | None, int | None] | None:
    """Layers and width of the part that reads images, by the keys of most towers and of Kimi's."""
    tower = keys.part("vision_config")
    if tower is None:
        return None
    sizes = (
        tower.number(name, 0) or tower.number(f"vt_{name}", 0)
        for name in ("num_hidden_layers", "hidden_size")
    )
    layers, hidden = (size or None for size in sizes)
    return layers, hidden


def _kv_heads(keys: Keys, layers: int, heads: int) -> int:
    """Nemotron-NAS states how many heads share one, a block each: those of the block with the most."""
    blocks = [
        block.get("attention") for block in keys.entries("block_configs", layers) if isinstance(block, dict)
    ]
    groups = [block.get("n_heads_in_group") for block in blocks if isinstance(block, dict)]
    sizes = [size for size in groups if type(size) is int and 0 < size <= heads]
    return heads // min(sizes) if sizes else keys.number("num_key_value_heads", heads)


def _other_heads(keys: Keys, layers: int, heads: int) -> tuple[int, ...]:
    """Laguna's: numbers of heads of layers with another one than most keys are for."""
    listed = keys.entries("num_attention_heads_per_layer", layers)
    return tuple(sorted({number for number in listed if isinstance(number, int) and number > 0} - {heads}))


def _vision_heads(keys: Keys) -> int | None:
    """Attention heads of the part that reads images, by the keys of most towers, of Qwen's and of Kimi's."""
    tower = keys.part("vision_config")
    if tower is None:
        return None
    names = ("num_attention_heads", "num_heads", "vt_num_attention_heads")
    return next((heads for name in names if (heads := tower.number(name, 0))), None)


def _draft_layers(keys: Keys, sizes: Measured) -> int:
    """Layers of multi-token prediction: config.json's number, where the tensors do not show another one.

    Qwen3-Next and MiMo-V2 have the layers and no key; some quantised checkpoints have the key and no layers.
    """
    stated = keys.number("num_nextn_predict_layers", 0)
    if not sizes.by_dtype:
        return stated
    return (stated or sizes.draft_layers) if sizes.by_part.get(Part.NEXTN.value) else 0


def _rope(keys: Keys) -> tuple[str, Keys]:
    """How rotary positions are scaled; "" where they are not, or where kinds of layers differ."""
    rope = keys.part("rope_scaling") or keys.part("rope_parameters") or keys.of({})
    return str(rope.values.get("rope_type") or rope.values.get("type") or ""), rope


def _context(keys: Keys) -> int:
    """Tokens of the longest request: plain scaling multiplies max_position_embeddings (not Gemma-3's); YaRN's
    and others' are in it (vllm/config/model.py, sglang/srt/utils/hf_transformers)."""
    trained, (kind, rope) = keys.number("max_position_embeddings"), _rope(keys)
    factor = rope.values.get("factor")
    plain = kind in ("linear", "dynamic") and not str(keys.values.get("model_type")).startswith("gemma3")
    if plain and isinstance(factor, int | float) and 1 <= factor <= _LARGEST_FACTOR:
        return int(trained * factor)
    return trained


def _short_context(keys: Keys) -> int | None:
    kind, rope = _rope(keys)
    name = "original_max_position_embeddings"
    return keys.number(name, rope.number(name, 0)) or None if kind in ("longrope", "su") else None


def _mla(keys: Keys) -> Mla | None:
    if not keys.number("kv_lora_rank", 0):
        return None
    return Mla(
        q_lora_rank=keys.number("q_lora_rank", 0) or None,
        kv_lora_rank=keys.number("kv_lora_rank"),
        qk_nope_head_dim=keys.number("qk_nope_head_dim"),
        qk_rope_head_dim=keys.number("qk_rope_head_dim"),
        v_head_dim=keys.number("v_head_dim"),
    )


def _moe(keys: Keys, layers: int) -> Moe | None:
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


def _dense_layers(keys: Keys, layers: int) -> tuple[int, ...]:
    """Layers without experts: listed, at the front, or all but each n-th."""
    for key, sparse in (("mlp_layer_types", "sparse"), ("moe_layer_freq", 1)):  # GLM-5; MiniMax-M3, MiMo-V2
        if listed := keys.entries(key, layers):
            return tuple(layer for layer, kind in enumerate(listed) if kind != sparse)
    letters = keys.values.get("hybrid_override_pattern")  # Nemotron-H: E is a layer of experts alone
    if isinstance(letters, str) and "E" in letters:
        return tuple(layer for layer, letter in enumerate(letters[:layers]) if letter != "E")
    if period := keys.number("expert_layer_period", 0):  # Jamba
        offset = keys.number("expert_layer_offset", 0)
        return tuple(layer for layer in range(layers) if layer % period != offset)
    first = keys.number("first_k_dense_replace", 0) or keys.number("moe_layer_num_skipped", 0)
    step = keys.number("decoder_sparse_step", 0) or keys.number("interleave_moe_layer_step", 1)
    only = keys.entries("mlp_only_layers", layers)
    return tuple(layer for layer in range(layers) if layer < first or layer in only or (layer + 1) % step)


def _tied(config: Mapping[str, Any], language_model: Mapping[str, Any]) -> bool:
    outer = config.get("tie_word_embeddings")
    return bool(language_model.get("tie_word_embeddings", False) if outer is None else outer)


def _dtype(quantized: Quantization | None, by_dtype: Mapping[str, int], config: Mapping[str, Any]) -> str:
    """What the tensors really are; where no header was read, what config.json states."""
    row = schemes.find(quantized.scheme) if quantized else None
    other_fp8 = row is not None and row.dtype == "F8_E4M3" and row.name != "fp8"  # MXFP8
    fp8 = by_dtype.get("F8_E4M3", 0)
    mixed = quantized is not None and quantized.is_mixed
    if fp8 > sum(by_dtype.get(name, 0) for name in _PACKED if name != "F8_E4M3") and not (other_fp8 or mixed):
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
