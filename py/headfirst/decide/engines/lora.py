"""Linear layers of a model on one rank, as engines wrap them with the two matrices of a LoRA adapter.

An adapter of rank r adds to a layer of `inputs` and `outputs` one matrix of r × inputs for each part that is
packed into the layer, and one of outputs × r. Tensor parallelism divides them as the layer: the outputs of
what comes first, the inputs of what follows (o_proj, down_proj). Source: vllm/lora/layers
(create_lora_weights), sglang/srt/lora/mem_pool.py (get_lora_A_shape, get_lora_B_shape).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from headfirst.decide.engines.base import Values
from headfirst.decide.model.checkpoint import FLOATS, Checkpoint, Mla

# Names in adapters of what engines pack into one layer.
PACKED = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj"), "qkv_proj"),
    **dict.fromkeys(("gate_proj", "up_proj"), "gate_up_proj"),
}
# Families whose query projection has a gate as wide as the queries (attn_output_gate).
_GATED = ("Qwen3_5", "Qwen3Next")


@dataclass(frozen=True)
class Linear:
    """A layer's part on one rank, by the engines' own name. `parts`: those that are packed into it.

    `by_inputs`: whether TP divides the inputs; not `is_divided`: neither these nor the outputs.
    """

    name: str
    inputs: int
    outputs: int
    parts: int = 1
    by_inputs: bool = False
    is_divided: bool = True

    @property
    def elements(self) -> int:
        """Elements of an adapter of rank 1."""
        return self.parts * self.inputs + self.outputs


def are_served(checkpoint: Checkpoint, values: Values) -> bool:
    """Whether the engine keeps room for adapters: the inventory names some, or engine_args enables them."""
    return bool(checkpoint.adapters or values.get("enable_lora"))


def estimated(checkpoint: Checkpoint) -> frozenset[str]:
    """The name of the adapters' memory where some modules may have other sizes than those counted here."""
    unknown = checkpoint.compress_ratios or checkpoint.recurrent or not all(checkpoint.adapters)
    return frozenset({"adapters"} if unknown else ())


def attention(checkpoint: Checkpoint, ranks: int) -> list[Linear]:
    """The linear layers of one attention layer that `ranks` divide."""
    if checkpoint.mla:
        return list(_latent(checkpoint, checkpoint.mla, ranks))
    hidden, query = checkpoint.hidden_size, checkpoint.attention_heads * checkpoint.head_dim // ranks
    cached = max(1, checkpoint.kv_heads // ranks) * checkpoint.head_dim
    gates = query if checkpoint.architecture.startswith(_GATED) else 0
    return [
        Linear("qkv_proj", hidden, query + gates + 2 * cached, parts=3),
        Linear("o_proj", query, hidden, by_inputs=True),
    ]


def _latent(checkpoint: Checkpoint, mla: Mla, ranks: int) -> Iterator[Linear]:
    hidden, heads = checkpoint.hidden_size, checkpoint.attention_heads // ranks
    latent = mla.kv_lora_rank + mla.qk_rope_head_dim
    query = heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim)
    if mla.q_lora_rank:
        yield Linear("fused_qkv_a_proj_with_mqa", hidden, mla.q_lora_rank + latent, parts=2, is_divided=False)
        yield Linear("q_b_proj", mla.q_lora_rank, query)
    else:
        yield Linear("q_proj", hidden, query)
        yield Linear("kv_a_proj_with_mqa", hidden, latent, is_divided=False)
    yield Linear("kv_b_proj", mla.kv_lora_rank, heads * (mla.qk_nope_head_dim + mla.v_head_dim))
    yield Linear("o_proj", heads * mla.v_head_dim, hidden, by_inputs=True)


def feed_forward(hidden: int, width: int) -> list[Linear]:
    """Gate and up, and down, of `width` on this rank."""
    return [
        Linear("gate_up_proj", hidden, 2 * width, parts=2),
        Linear("down_proj", width, hidden, by_inputs=True),
    ]


def element_bytes(checkpoint: Checkpoint) -> int:
    """Bytes of one element: buffers have the type in which the model computes."""
    return FLOATS.get(checkpoint.dtype, 2)


def elements(linears: Iterable[Linear], modules: Collection[str]) -> int:
    """Elements of an adapter of rank 1 for those of `linears` that `modules` names, or "all"."""
    return sum(linear.elements for linear in linears if linear.name in modules or "all" in modules)
