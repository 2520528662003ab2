"""Memory of LoRA adapters on one rank, which engines allocate at start for the largest rank."""

from __future__ import annotations

from headfirst.decide.engines.layout import Layout
from headfirst.decide.model.checkpoint import Checkpoint

_ELEMENT = 2  # bytes: the type of the base model


def adapter_bytes(checkpoint: Checkpoint, layout: Layout, *, rank: int, slots: int) -> int:
    """Bytes of `slots` adapters of `rank` on the fullest rank: for each matrix of attention and feed-forward.

    A matrix of `wide` inputs and `tall` outputs has one of rank × wide and one of tall × rank. Of those that
    TP divides by outputs the first is whole on each rank; of those that it divides by inputs, the second.
    Source: create_lora_weights of vLLM's lora/layers/base_linear.py, without --fully-sharded-loras.
    """
    hidden, tensor = checkpoint.hidden_size, layout.tensor
    query = checkpoint.attention_heads * checkpoint.head_dim
    cached = checkpoint.kv_heads * checkpoint.head_dim
    attention = 3 * hidden + (query + 2 * cached) // tensor + query // tensor + hidden
    moe = checkpoint.moe
    dense_layers = checkpoint.layers if moe is None else len(moe.dense_layers)
    dense = dense_layers * _feed_forward(hidden, checkpoint.intermediate_size // tensor)
    experts = 0
    if moe is not None:
        width = moe.intermediate_size // (1 if layout.expert > 1 else tensor)
        each = _feed_forward(hidden, width) * moe.experts // max(1, layout.expert)
        shared = _feed_forward(hidden, moe.shared_intermediate_size // tensor) if moe.shared_experts else 0
        experts = (checkpoint.layers - dense_layers) * (each + shared)
    elements = checkpoint.layers * attention + dense + experts
    return slots * rank * elements * _ELEMENT // layout.pipeline


def _feed_forward(hidden: int, width: int) -> int:
    """Elements of gate, up and down for a rank of one, where each has `width`."""
    return 2 * (hidden + width) + (width + hidden)
