"""A checkpoint, described: what the plan must know of a model before anything is downloaded.

Numbers come from the model's own config.json and from its safetensors headers; nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from headfirst.errors import InputError
from headfirst.untrusted import UntrustedError, device_name, integer

# safetensors dtype name -> bytes of one element (README of the safetensors project, "Format").
ELEMENT_BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
    "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1,
}  # fmt: skip

# The plan counts tensors layer by layer and tries numbers of ranks up to the heads.
_LIMITS = {"num_hidden_layers": 4096, "num_nextn_predict_layers": 64, "num_attention_heads": 4096}
_LARGEST = 2**31


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Mla(_Frozen):
    """Dimensions of multi-head latent attention (DeepSeek-V2 and later)."""

    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int


class Moe(_Frozen):
    """Mixture of experts: `experts` routed ones per layer from layer `first_dense_layers` on."""

    experts: int
    experts_per_token: int
    shared_experts: int
    intermediate_size: int
    first_dense_layers: int


class Shard(_Frozen):
    """One safetensors file; `bytes` is its size on disk, None where only its name is known."""

    name: str
    bytes: int | None


class Checkpoint(_Frozen):
    """A model's architecture and sizes. All `*bytes` are plain byte counts."""

    id: str
    revision: str | None
    architecture: str
    dtype: str  # fp8 | bf16 | fp16 | fp32 | int8 | another quantisation's own name, such as awq
    weight_block_size: tuple[int, int] | None
    hidden_size: int
    intermediate_size: int
    layers: int
    nextn_layers: int  # multi-token-prediction layers kept after the last layer
    attention_heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    tied_embeddings: bool
    max_context: int
    mla: Mla | None
    moe: Moe | None
    remote_code: bool  # config.json's auto_map: the model brings Python files of its own
    total_bytes: int  # weight files on disk
    bytes_by_dtype: dict[str, int]  # safetensors dtype name -> bytes of tensors of that dtype
    scale_bytes: int  # of these, the FP8 block scales, which a conversion to BF16 drops
    shards: tuple[Shard, ...]
    source: str  # folder | hub | catalogue
    note: str | None = None  # said to the person, e.g. why the catalogue was used

    @property
    def fp8_bytes(self) -> int:
        """Bytes of FP8 tensors: one byte a parameter."""
        return sum(size for name, size in self.bytes_by_dtype.items() if name.startswith("F8_E4M3"))

    @property
    def bf16_bytes(self) -> int:
        """Bytes on disk after FP8 -> BF16: FP8 tensors double, their scales go, the rest stays."""
        return self.total_bytes + self.fp8_bytes - self.scale_bytes

    @property
    def largest_shard_bytes(self) -> int:
        """The largest weight file; where sizes are not known, their mean."""
        known = [shard.bytes for shard in self.shards if shard.bytes is not None]
        return max(known, default=-(-self.total_bytes // max(1, len(self.shards))))


def from_config(
    config: Mapping[str, Any],
    *,
    id: str,
    revision: str | None,
    total_bytes: int,
    bytes_by_dtype: Mapping[str, int],
    scale_bytes: int,
    shards: tuple[Shard, ...],
    source: str,
    where: str,
    note: str | None = None,
) -> Checkpoint:
    """Describe a checkpoint from its config.json (Hugging Face's key names) and its measured sizes.

    Raises InputError naming the missing key, with `where` as the place.
    """

    def number(key: str, default: int | None = None) -> int:
        value = config.get(key)
        if default is not None and not value:
            return default
        if not isinstance(value, int):
            raise InputError(
                f"config.json has no usable {key!r}, which the plan needs.",
                where=where,
                hint="Is this the config.json of a decoder-only language model? See the model's page.",
            )
        return integer(
            value, what=f"{key} in config.json", where=where, low=1, high=_LIMITS.get(key, _LARGEST)
        )

    architectures = config.get("architectures")
    if not isinstance(architectures, list) or not architectures:
        raise InputError("config.json names no architecture.", where=where)
    quantization = config.get("quantization_config") or {}
    if not isinstance(quantization, dict):
        raise UntrustedError("quantization_config in config.json is not an object", where=where)
    heads = number("num_attention_heads")
    return Checkpoint(
        id=id,
        revision=revision,
        architecture=device_name(architectures[0], what="the architecture", where=where, limit=128),
        dtype=_dtype(quantization, bytes_by_dtype, where),
        weight_block_size=_block(quantization.get("weight_block_size"), where),
        hidden_size=number("hidden_size"),
        intermediate_size=number("intermediate_size"),
        layers=number("num_hidden_layers"),
        nextn_layers=number("num_nextn_predict_layers", 0),
        attention_heads=heads,
        kv_heads=number("num_key_value_heads", heads),
        head_dim=number("head_dim", max(1, number("hidden_size") // heads)),
        vocab_size=number("vocab_size"),
        tied_embeddings=bool(config.get("tie_word_embeddings", False)),
        max_context=number("max_position_embeddings"),
        mla=_mla(config, number),
        moe=_moe(config, number),
        remote_code="auto_map" in config,
        total_bytes=total_bytes,
        bytes_by_dtype=dict(bytes_by_dtype),
        scale_bytes=scale_bytes,
        shards=shards,
        source=source,
        note=note,
    )


def _mla(config: Mapping[str, Any], number: Callable[..., int]) -> Mla | None:
    if not config.get("kv_lora_rank"):
        return None
    return Mla(
        q_lora_rank=number("q_lora_rank", 0) or None,
        kv_lora_rank=number("kv_lora_rank"),
        qk_nope_head_dim=number("qk_nope_head_dim"),
        qk_rope_head_dim=number("qk_rope_head_dim"),
        v_head_dim=number("v_head_dim"),
    )


def _moe(config: Mapping[str, Any], number: Callable[..., int]) -> Moe | None:
    # DeepSeek says n_routed_experts, Qwen says num_experts.
    experts = number("n_routed_experts", 0) or number("num_experts", 0)
    if not experts:
        return None
    return Moe(
        experts=experts,
        experts_per_token=number("num_experts_per_tok"),
        shared_experts=number("n_shared_experts", 0),
        intermediate_size=number("moe_intermediate_size"),
        first_dense_layers=number("first_k_dense_replace", 0),
    )


def _block(value: Any, where: str) -> tuple[int, int] | None:
    if not value:
        return None
    what = "weight_block_size in config.json"
    if not isinstance(value, list) or len(value) != 2:
        raise UntrustedError(f"{what} is not two numbers", where=where)
    rows, columns = (integer(size, what=what, where=where, low=1, high=_LARGEST) for size in value)
    return rows, columns


def _dtype(quantization: Mapping[str, Any], bytes_by_dtype: Mapping[str, int], where: str) -> str:
    """What the tensors really are, before what config.json says they are (a left-over
    quantization_config after a conversion is a known trap)."""
    if any(name.startswith("F8_") for name in bytes_by_dtype):
        return "fp8"
    method = quantization.get("quant_method")
    if method and method != "fp8":
        return device_name(method, what="quant_method in config.json", where=where)
    largest = max(bytes_by_dtype, key=lambda name: bytes_by_dtype[name], default="BF16")
    return {"BF16": "bf16", "F16": "fp16", "F32": "fp32", "I8": "int8"}.get(largest, largest.lower())
