"""How many parameters a model has, tensor by tensor, from its dimensions alone.

Used where no safetensors header can be read, and to find which tensors every tensor-parallel rank
holds whole. Names follow the layers of the Hugging Face and SGLang model files of each architecture.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from headfirst.common import quantization
from headfirst.common.errors import InputError
from headfirst.common.safetensors_file import DTYPE_BITS
from headfirst.decide.model.checkpoint import Checkpoint, Mla, Moe
from headfirst.decide.model.measured import Part


class Split(Enum):
    """How tensor parallelism spreads a tensor."""

    SHARDED = "sharded"  # every rank holds 1/tp
    HEADS = "heads"  # by attention heads: 1/tp of the ranks that share one request's attention
    KV = "kv"  # likewise, by KV heads, of which every rank holds at least one
    EXPERTS = "experts"  # by expert or within each: 1/(ranks that share them)
    WHOLE = "whole"  # every rank holds all of it


@dataclass(frozen=True)
class Tensor:
    """`count` equal tensors of `rows` x `columns`; `linear` ones are quantised in a quantised checkpoint."""

    rows: int
    columns: int
    split: Split
    part: Part
    linear: bool = True
    count: int = 1
    fp32: bool = False

    @property
    def parameters(self) -> int:
        """Elements in all `count` tensors together."""
        return self.rows * self.columns * self.count

    @property
    def plain_bytes(self) -> int:
        """Bytes in BF16, of what is kept in fp32 in that."""
        return self.parameters * (4 if self.fp32 else 2)

    def times(self, count: int) -> Tensor:
        """`count` of them; surveys of the catalogue ask for so many that dataclasses.replace is too slow."""
        return Tensor(self.rows, self.columns, self.split, self.part, self.linear, count, self.fp32)


@dataclass(frozen=True)
class _Traits:
    """What an architecture has beside the matrices that all have. `qk_norm`: of one head, or of all heads."""

    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: str = ""  # head | all
    norms: int = 2  # of each layer, as wide as the model
    correction_bias: bool = False  # of the router, in fp32
    expert_bias: bool = False  # of experts and router
    sinks: bool = False


_ARCHITECTURES = {
    "LlamaForCausalLM": _Traits(),
    "MistralForCausalLM": _Traits(),
    "Mistral3ForConditionalGeneration": _Traits(),
    "MixtralForCausalLM": _Traits(),
    "Qwen2ForCausalLM": _Traits(qkv_bias=True),
    "Qwen3ForCausalLM": _Traits(qk_norm="head"),
    "Qwen3MoeForCausalLM": _Traits(qk_norm="head"),
    "Qwen3VLForConditionalGeneration": _Traits(qk_norm="head"),
    "Qwen3VLMoeForConditionalGeneration": _Traits(qk_norm="head"),
    "Llama4ForConditionalGeneration": _Traits(),
    "Gemma3ForCausalLM": _Traits(qk_norm="head", norms=4),
    "Gemma3ForConditionalGeneration": _Traits(qk_norm="head", norms=4),
    "DeepseekV3ForCausalLM": _Traits(correction_bias=True),
    "DeepseekV32ForCausalLM": _Traits(correction_bias=True),
    "KimiK25ForConditionalGeneration": _Traits(correction_bias=True),
    "Glm4MoeForCausalLM": _Traits(correction_bias=True),
    "MiniMaxM2ForCausalLM": _Traits(qk_norm="all", correction_bias=True),
    "GptOssForCausalLM": _Traits(qkv_bias=True, o_bias=True, expert_bias=True, sinks=True),
}


def tensors(model: Checkpoint) -> list[Tensor] | None:
    """All tensors of `model`, equal ones together; None for an architecture that is not in the table."""
    traits = _ARCHITECTURES.get(model.architecture)
    if traits is None:
        return None
    counts: dict[Tensor, int] = {}
    for tensor in _tensors(model, traits):
        single = tensor.times(1)
        counts[single] = counts.get(single, 0) + tensor.count
    return [tensor.times(count) for tensor, count in counts.items()]


def parameters(model: Checkpoint) -> int:
    """Parameters of the model; of an unknown architecture the values that its dtypes hold."""
    if listed := tensors(model):
        return sum(tensor.parameters for tensor in listed)
    return _values(model.bytes_by_dtype) if model.bytes_by_dtype else model.bf16_bytes // 2


def _values(by_dtype: Mapping[str, int]) -> int:
    """Weights in tensors of these dtypes: 4-bit ones are packed in U8, I32 or, beside E8M0 scales, I8."""
    sizes = Counter(by_dtype)
    packed = sizes["U8"] + sizes["I32"] + (sizes["I8"] if sizes["F8_E8M0"] else 0)
    # NVFP4 has an FP8 scale for 16 weights, which are 8 bytes.
    scales = min(sizes["U8"] // 8, sizes["F8_E4M3"])
    whole = sizes["F8_E4M3"] - scales + (0 if sizes["F8_E8M0"] else sizes["I8"])
    plain = (sizes["BF16"] + sizes["F16"]) // 2
    single = 0 if packed or whole else sizes["F32"] // 4  # scales of quantised weights are F32
    return 2 * packed + whole + plain + single


def stored_bytes(model: Checkpoint, tensor: Tensor, *, quantized: bool) -> dict[str, int]:
    """safetensors dtype name -> bytes of the tensor in the checkpoint, with the scales beside it.

    `quantized`: the part it belongs to is quantised at all (some formats leave attention as it is).
    InputError where the scheme is not in the table of headfirst.common.quantization.
    """
    kind = model.quantization
    plain = {"fp16": "F16", "fp32": "F32"}.get(model.dtype, "BF16")
    if not (kind and quantized and tensor.linear):
        name = "F32" if tensor.fp32 else plain
        return {name: tensor.parameters * DTYPE_BITS[name] // 8}
    scheme = quantization.find(kind.scheme, kind.method)
    if scheme is None:
        raise InputError(
            f"The weights are quantised with {kind}, a scheme that is not in the table of schemes.",
            where=f"quantization_config of {model.id}",
            hint="Fetch the model and set model_source=path and model=/its/folder: its files have the sizes.",
        )
    by_row = kind.conversion is not None and "row" in kind.conversion.layouts
    block = kind.block or ((1, tensor.columns) if by_row else None)
    sizes = scheme.stored_bytes(tensor.rows, tensor.columns, block, kind.group_size)
    return {name: size * tensor.count for name, size in sizes.items()}


def _tensors(model: Checkpoint, traits: _Traits) -> Iterator[Tensor]:
    hidden, vocab = model.hidden_size, model.vocab_size
    yield Tensor(vocab, hidden, Split.SHARDED, Part.EMBEDDING, linear=False)
    if model.vision_parameters:
        yield Tensor(1, model.vision_parameters, Split.SHARDED, Part.VISION, linear=False)
    with_experts = sum(model.has_experts(layer) for layer in range(model.layers))
    for experts, layers in ((True, with_experts), (False, model.layers - with_experts)):
        for tensor in _layer(model, traits, experts=experts) if layers else ():
            yield tensor.times(tensor.count * layers)
    yield Tensor(1, hidden, Split.WHOLE, Part.DENSE, linear=False)  # final norm
    if not model.tied_embeddings:
        yield Tensor(vocab, hidden, Split.SHARDED, Part.HEAD, linear=False)
    if model.nextn_layers:
        layer = _layer(model, traits, experts=model.has_experts(model.layers))
        for tensor in (*layer, *_nextn_extras(model)):
            yield replace(tensor, part=Part.NEXTN, count=tensor.count * model.nextn_layers)


def _layer(model: Checkpoint, traits: _Traits, *, experts: bool) -> Iterator[Tensor]:
    hidden = model.hidden_size
    yield Tensor(1, hidden, Split.WHOLE, Part.DENSE, linear=False, count=traits.norms)
    yield from _latent_attention(model, model.mla) if model.mla else _attention(model, traits)
    if model.moe and experts:
        yield from _experts(model, model.moe, traits)
    else:
        yield from _mlp(hidden, model.intermediate_size, Split.SHARDED, Part.DENSE)


def _attention(model: Checkpoint, traits: _Traits) -> Iterator[Tensor]:
    part, hidden = Part.ATTENTION, model.hidden_size
    query = model.attention_heads * model.head_dim
    kv = model.kv_heads * model.head_dim
    yield Tensor(query, hidden, Split.HEADS, part)
    yield Tensor(kv, hidden, Split.KV, part, count=2)
    yield Tensor(hidden, query, Split.HEADS, part)
    if traits.qkv_bias or model.attention_bias:
        yield Tensor(1, query, Split.HEADS, part, linear=False)
        yield Tensor(1, kv, Split.KV, part, linear=False, count=2)
    if traits.o_bias:
        yield Tensor(1, hidden, Split.WHOLE, part, linear=False)
    if traits.sinks:
        yield Tensor(1, model.attention_heads, Split.HEADS, part, linear=False)
    if traits.qk_norm == "all":
        yield Tensor(1, query, Split.HEADS, part, linear=False)
        yield Tensor(1, kv, Split.KV, part, linear=False)
    elif traits.qk_norm == "head" or (model.qk_norm and model.architecture == "Glm4MoeForCausalLM"):
        yield Tensor(1, model.head_dim, Split.WHOLE, part, linear=False, count=2)


def _latent_attention(model: Checkpoint, mla: Mla) -> Iterator[Tensor]:
    part, heads, hidden = Part.ATTENTION, model.attention_heads, model.hidden_size
    query = heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim)
    if mla.q_lora_rank:
        yield Tensor(mla.q_lora_rank, hidden, Split.WHOLE, part)
        yield Tensor(1, mla.q_lora_rank, Split.WHOLE, part, linear=False)
        yield Tensor(query, mla.q_lora_rank, Split.HEADS, part)
    else:
        yield Tensor(query, hidden, Split.HEADS, part)
    yield Tensor(mla.kv_lora_rank + mla.qk_rope_head_dim, hidden, Split.WHOLE, part)
    yield Tensor(1, mla.kv_lora_rank, Split.WHOLE, part, linear=False)
    yield Tensor(heads * (mla.qk_nope_head_dim + mla.v_head_dim), mla.kv_lora_rank, Split.HEADS, part)
    yield Tensor(hidden, heads * mla.v_head_dim, Split.HEADS, part)
    if index := model.index:  # every rank selects for itself
        yield Tensor(index.heads * index.head_dim, mla.q_lora_rank or hidden, Split.WHOLE, part)
        yield Tensor(index.head_dim, hidden, Split.WHOLE, part)
        yield Tensor(1, index.head_dim, Split.WHOLE, part, linear=False, count=2, fp32=True)
        yield Tensor(index.heads, hidden, Split.WHOLE, part, linear=False)


def _experts(model: Checkpoint, moe: Moe, traits: _Traits) -> Iterator[Tensor]:
    hidden = model.hidden_size
    yield Tensor(moe.experts, hidden, Split.WHOLE, Part.DENSE, linear=False)  # router
    if traits.correction_bias:
        yield Tensor(1, moe.experts, Split.WHOLE, Part.DENSE, linear=False, fp32=True)
    yield from _mlp(hidden, moe.intermediate_size, Split.EXPERTS, Part.EXPERTS, count=moe.experts)
    if traits.expert_bias:
        yield Tensor(1, moe.experts, Split.WHOLE, Part.DENSE, linear=False)
        width = 2 * moe.intermediate_size + hidden
        yield Tensor(1, width, Split.EXPERTS, Part.EXPERTS, linear=False, count=moe.experts)
    if moe.shared_intermediate_size:
        yield from _mlp(hidden, moe.shared_intermediate_size, Split.SHARDED, Part.DENSE)


def _mlp(hidden: int, width: int, split: Split, part: Part, count: int = 1) -> Iterator[Tensor]:
    yield Tensor(width, hidden, split, part, count=2 * count)  # gate and up
    yield Tensor(hidden, width, split, part, count=count)  # down


def _nextn_extras(model: Checkpoint) -> Iterator[Tensor]:
    part, hidden, vocab = Part.NEXTN, model.hidden_size, model.vocab_size
    yield Tensor(vocab, hidden, Split.SHARDED, part, linear=False, count=2)  # embedding and head
    yield Tensor(hidden, 2 * hidden, Split.WHOLE, part, linear=False)  # eh_proj
    yield Tensor(1, hidden, Split.WHOLE, part, linear=False, count=3)  # enorm, hnorm, head norm
