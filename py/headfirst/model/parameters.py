"""How many parameters a model has, tensor by tensor, from its dimensions alone.

Used where no safetensors header can be read, and to know which tensors every tensor-parallel rank
holds whole. Names follow the layers of the Hugging Face and SGLang model files of each architecture.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from headfirst.model.checkpoint import Checkpoint, Mla, Moe


class Split(Enum):
    """How tensor parallelism spreads a tensor."""

    SHARDED = "sharded"  # every rank holds 1/tp
    HEADS = "heads"  # by attention heads: 1/tp of the ranks that share one request's attention
    KV = "kv"  # likewise, by KV heads, of which every rank holds at least one
    WHOLE = "whole"  # every rank holds all of it


class Place(Enum):
    """Where a tensor lies, which pipeline parallelism and the loader care about."""

    EMBEDDING = "embedding"
    LAYER = "layer"
    HEAD = "head"
    NEXTN = "nextn"  # multi-token prediction: loaded for speculative decoding only


@dataclass(frozen=True)
class Tensor:
    """`count` equal tensors of `rows` x `columns`; `linear` ones are FP8 in an FP8 checkpoint."""

    rows: int
    columns: int
    split: Split
    place: Place
    linear: bool = True
    count: int = 1
    fp32: bool = False

    @property
    def parameters(self) -> int:
        """Elements in all `count` tensors together."""
        return self.rows * self.columns * self.count

    def scales(self, block: tuple[int, int]) -> int:
        """Elements of the block scales that an FP8 checkpoint keeps beside these tensors."""
        return -(-self.rows // block[0]) * -(-self.columns // block[1]) * self.count


KNOWN = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "DeepseekV3ForCausalLM")


def tensors(model: Checkpoint) -> list[Tensor] | None:
    """All tensors of `model`, or None for an architecture that is not in KNOWN."""
    if model.architecture not in KNOWN:
        return None
    return list(_tensors(model))


def parameters_by_dtype(model: Checkpoint) -> dict[str, int] | None:
    """safetensors dtype name -> parameters, scales included; None for unknown architectures."""
    found = tensors(model)
    if found is None:
        return None
    counts = {"F8_E4M3": 0, "BF16": 0, "F32": 0}
    for tensor in found:
        if model.dtype == "fp8" and tensor.linear and model.weight_block_size:
            counts["F8_E4M3"] += tensor.parameters
            counts["F32"] += tensor.scales(model.weight_block_size)
        else:
            counts["F32" if tensor.fp32 else "BF16"] += tensor.parameters
    return {name: count for name, count in counts.items() if count}


def scale_parameters(model: Checkpoint) -> int:
    """Elements of all block scales; 0 where the model has none or its architecture is unknown."""
    block = model.weight_block_size
    if model.dtype != "fp8" or block is None:
        return 0
    return sum(tensor.scales(block) for tensor in tensors(model) or [] if tensor.linear)


def _tensors(model: Checkpoint) -> Iterator[Tensor]:
    hidden, vocab = model.hidden_size, model.vocab_size
    yield Tensor(vocab, hidden, Split.SHARDED, Place.EMBEDDING, linear=False)
    for layer in range(model.layers):
        yield from _layer(model, layer, Place.LAYER)
    yield Tensor(1, hidden, Split.WHOLE, Place.HEAD, linear=False)  # final norm
    if not model.tied_embeddings:
        yield Tensor(vocab, hidden, Split.SHARDED, Place.HEAD, linear=False)
    for layer in range(model.layers, model.layers + model.nextn_layers):
        yield from _layer(model, layer, Place.NEXTN)
        yield from _nextn_extras(model)


def _layer(model: Checkpoint, layer: int, place: Place) -> Iterator[Tensor]:
    yield Tensor(1, model.hidden_size, Split.WHOLE, place, linear=False, count=2)  # the two norms
    yield from _latent_attention(model, model.mla, place) if model.mla else _attention(model, place)
    if model.moe and layer >= model.moe.first_dense_layers:
        yield from _experts(model, model.moe, place)
    else:
        yield from _mlp(model.hidden_size, model.intermediate_size, place)


def _attention(model: Checkpoint, place: Place) -> Iterator[Tensor]:
    query = model.attention_heads * model.head_dim
    kv = model.kv_heads * model.head_dim
    yield Tensor(query, model.hidden_size, Split.HEADS, place)
    yield Tensor(kv, model.hidden_size, Split.KV, place, count=2)
    yield Tensor(model.hidden_size, query, Split.HEADS, place)
    if model.architecture == "Qwen2ForCausalLM":  # biases of q, k, v
        yield Tensor(1, query, Split.HEADS, place, linear=False)
        yield Tensor(1, kv, Split.KV, place, linear=False, count=2)
    if model.architecture == "Qwen3ForCausalLM":  # norms of q and k
        yield Tensor(1, model.head_dim, Split.WHOLE, place, linear=False, count=2)


def _latent_attention(model: Checkpoint, mla: Mla, place: Place) -> Iterator[Tensor]:
    heads, hidden = model.attention_heads, model.hidden_size
    query = heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim)
    if mla.q_lora_rank:
        yield Tensor(mla.q_lora_rank, hidden, Split.WHOLE, place)
        yield Tensor(1, mla.q_lora_rank, Split.WHOLE, place, linear=False)
        yield Tensor(query, mla.q_lora_rank, Split.HEADS, place)
    else:
        yield Tensor(query, hidden, Split.HEADS, place)
    yield Tensor(mla.kv_lora_rank + mla.qk_rope_head_dim, hidden, Split.WHOLE, place)
    yield Tensor(1, mla.kv_lora_rank, Split.WHOLE, place, linear=False)
    yield Tensor(heads * (mla.qk_nope_head_dim + mla.v_head_dim), mla.kv_lora_rank, Split.HEADS, place)
    yield Tensor(hidden, heads * mla.v_head_dim, Split.HEADS, place)


def _experts(model: Checkpoint, moe: Moe, place: Place) -> Iterator[Tensor]:
    hidden = model.hidden_size
    yield Tensor(moe.experts, hidden, Split.WHOLE, place, linear=False)  # router
    yield Tensor(1, moe.experts, Split.WHOLE, place, linear=False, fp32=True)  # e_score_correction_bias
    yield from _mlp(hidden, moe.intermediate_size, place, count=moe.experts)
    if moe.shared_experts:
        yield from _mlp(hidden, moe.intermediate_size * moe.shared_experts, place)


def _mlp(hidden: int, width: int, place: Place, count: int = 1) -> Iterator[Tensor]:
    yield Tensor(width, hidden, Split.SHARDED, place, count=2 * count)  # gate and up
    yield Tensor(hidden, width, Split.SHARDED, place, count=count)  # down


def _nextn_extras(model: Checkpoint) -> Iterator[Tensor]:
    hidden, vocab = model.hidden_size, model.vocab_size
    yield Tensor(vocab, hidden, Split.SHARDED, Place.NEXTN, linear=False, count=2)  # embedding and head
    yield Tensor(hidden, 2 * hidden, Split.WHOLE, Place.NEXTN, linear=False)  # eh_proj
    yield Tensor(1, hidden, Split.WHOLE, Place.NEXTN, linear=False, count=3)  # enorm, hnorm, head norm
