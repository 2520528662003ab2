"""LoRA in SGLang 0.5.23: the buffers that it allocates for adapters.

Source: sglang/srt/lora: lora_manager.py (init_lora_shapes), mem_pool.py (init_buffers).
"""

from __future__ import annotations

from headfirst.decide.engines import lora
from headfirst.decide.engines.base import Adapters, AdapterSlots, ArgumentNeeds, Values
from headfirst.decide.engines.layout import Layout
from headfirst.decide.model.checkpoint import Checkpoint, Moe

# validate_lora_batch counts requests without an adapter as those of one more.
SLOTS = AdapterSlots("--max-loras-per-batch", default=8, base=True)
_SIZES = frozenset({"max_lora_rank", "lora_target_modules"})  # without them, SGLang reads the adapters
_ENDS = ("embed_tokens", "lm_head")
# lora/utils.py, get_normalized_target_modules.
_PACKED = {
    **lora.PACKED,
    **dict.fromkeys(("vocab_emb", "embeddings", "word_embeddings"), "embed_tokens"),
    **dict.fromkeys(("output", "unembed_tokens"), "lm_head"),
    **dict.fromkeys(("q_a_proj", "kv_a_proj_with_mqa"), "fused_qkv_a_proj_with_mqa"),
}


def needs(adapters: Adapters, values: Values) -> ArgumentNeeds:
    """SGLang takes the ranks and the modules from the adapters' files."""
    if all(adapters.values()) or values.keys() >= _SIZES:
        return ArgumentNeeds()
    return ArgumentNeeds(note="SGLang's buffers for what was not read are not in the memory of the plan.")


def _modules(names: tuple[str, ...] | list[str] | str) -> frozenset[str]:
    """Names as SGLang has them, {"all"} for PEFT's shorthands."""
    if isinstance(names, str):
        return frozenset({"all"})
    last = (name.rpartition(".")[2] for name in names)
    return frozenset(_PACKED.get(name, name) for name in last)


def buffer_bytes(checkpoint: Checkpoint, layout: Layout, values: Values) -> int:
    """Bytes on each rank that SGLang allocates at start for the adapters that were read.

    A pipeline stage has buffers for all layers, and a layer with experts has them beside those of its shared
    experts. Embedding and head together are allocated twice (init_embedding_buffer).
    """
    ranks = [config.rank for config in checkpoint.adapters if config]
    rank, modules = values.get("max_lora_rank") or max(ranks, default=0), _adapted(checkpoint, values)
    if not lora.are_served(checkpoint, values):
        return 0
    attention = layout.tensor // layout.attention_data
    layer = lora.attention(checkpoint, attention)
    elements = checkpoint.layers * lora.elements(layer, modules)
    elements += _dense(checkpoint, layout, modules)
    if moe := checkpoint.moe:
        elements += checkpoint.layers * _experts(checkpoint, moe, layout, modules)
    elements += _ends(checkpoint, layout, modules)
    slots = values.get("max_loras_per_batch", SLOTS.default)
    return int(slots * rank * elements * lora.element_bytes(checkpoint))


def _adapted(checkpoint: Checkpoint, values: Values) -> frozenset[str]:
    """The user's --lora-target-modules, or those of all adapters."""
    if targets := values.get("lora_target_modules"):
        return _modules(targets)
    return frozenset().union(*(_modules(config.targets) for config in checkpoint.adapters if config))


def _dense(checkpoint: Checkpoint, layout: Layout, modules: frozenset[str]) -> int:
    """Of layers without experts and of shared experts; without these, a model with experts has none."""
    hidden, moe = checkpoint.hidden_size, checkpoint.moe
    widths = [checkpoint.intermediate_size // layout.tensor] * checkpoint.layers
    if moe is not None:
        shared = moe.shared_intermediate_size // layout.tensor
        if not shared:
            return 0
        widths = [shared if checkpoint.has_experts(layer) else width for layer, width in enumerate(widths)]
    return sum(lora.elements(lora.feed_forward(hidden, width), modules) for width in widths)


def _experts(checkpoint: Checkpoint, moe: Moe, layout: Layout, modules: frozenset[str]) -> int:
    width = moe.intermediate_size // max(1, layout.tensor // layout.expert)
    each = lora.elements(lora.feed_forward(checkpoint.hidden_size, width), modules)
    return moe.experts // layout.expert * each


def _ends(checkpoint: Checkpoint, layout: Layout, modules: frozenset[str]) -> int:
    """The embedding is whole on each rank; the head is divided by the vocabulary."""
    hidden, vocab = checkpoint.hidden_size, checkpoint.vocab_size
    sizes = {"embed_tokens": vocab + hidden, "lm_head": hidden + vocab // layout.tensor}
    adapted = [name for name in _ENDS if name in modules or "all" in modules]
    return len(adapted) * sum(sizes[name] for name in adapted)
