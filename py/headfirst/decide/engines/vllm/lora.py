"""LoRA in vLLM 0.33.0: the rank that adapters need, and the buffers that it allocates for them.

Source: config/lora.py (LoRAConfig, MaxLoRARanks), lora/layers.
"""

from __future__ import annotations

from collections.abc import Iterator

from headfirst.decide.engines import lora
from headfirst.decide.engines.base import Adapters, AdapterSlots, ArgumentNeeds, Values
from headfirst.decide.engines.layout import Layout
from headfirst.decide.engines.lora import Linear
from headfirst.decide.engines.vllm.layout import expert_ranks
from headfirst.decide.engines.vllm.support import SupportTable
from headfirst.decide.model.adapter import AdapterConfig
from headfirst.decide.model.checkpoint import Checkpoint, Moe

_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # values of --max-lora-rank
_DEFAULT = 16
SLOTS = AdapterSlots("--max-loras", default=1)
# With images or sound: their language model, which vLLM looks up at start, has adapters for both ends.
_ENDS = ("Cohere2Vision", "Exaone4_5", "Granite", "Lfm2Vl", "Llama4", "MiniCPM", "Qwen3VL", "Qwen3_5")


def needs(adapters: Adapters, values: Values) -> ArgumentNeeds:
    """--max-lora-rank for these adapters."""
    known = {name: config.largest_rank for name, config in adapters.items() if config}
    limit = rank_limit(tuple(adapters.values()), values)
    note = ""
    if len(known) < len(adapters):
        note = (
            f"vLLM accepts ranks up to {limit} and ends at start with a larger one: "
            "engine_args=--max-lora-rank raises it."
        )
    arguments = {} if values.get("max_lora_rank") or limit == _DEFAULT else {"--max-lora-rank": str(limit)}
    name = max(known, key=lambda name: known[name], default="")
    largest = known.get(name, 0)
    reason = f"The largest rank of the adapters is {largest} ({name}); the default is {_DEFAULT}."
    return ArgumentNeeds(arguments, reason, "vLLM's config/lora.py", note)


def rank_limit(adapters: tuple[AdapterConfig | None, ...], values: Values) -> int:
    """--max-lora-rank: the user's, or the least of its values for the adapters; one not read may have 16."""
    if max_rank := values.get("max_lora_rank"):
        return int(max_rank)
    largest = max((config.largest_rank if config else _DEFAULT for config in adapters), default=_DEFAULT)
    return next((value for value in _RANKS if value >= largest), _RANKS[-1])


def buffer_bytes(has: SupportTable, checkpoint: Checkpoint, layout: Layout, values: Values) -> int:
    """Bytes on the fullest rank that vLLM allocates for adapters when it starts; 0 without adapters.

    It wraps every linear layer, whichever an adapter has, for --max-loras of --max-lora-rank.
    """
    if not lora.are_served(checkpoint, values):
        return 0
    can = has.abilities(checkpoint.architecture) or frozenset()
    kinds = checkpoint.kinds(range(checkpoint.layers))
    layers = sum(kinds.values()) - kinds["linear"] - kinds["none"]
    linears = [(linear, layers) for linear in lora.attention(checkpoint, layout.tensor)]
    linears += _feed_forwards(checkpoint, layout, can)
    sharded = layout.tensor if values.get("fully_sharded_loras") else 1
    modules = _modules(values.get("lora_target_modules"))
    elements = sum(
        count * _divided(linear, sharded)
        for linear, count in linears
        if modules is None or linear.name in modules
    )
    elements = -(-elements // layout.pipeline)
    if modules is None and ("lora_ends" in can or checkpoint.architecture.startswith(_ENDS)):
        elements += 2 * (checkpoint.vocab_size + checkpoint.hidden_size)  # each rank has all of both
    slots, rank = values.get("max_loras", SLOTS.default), rank_limit(checkpoint.adapters, values)
    return int(slots * rank * elements * lora.element_bytes(checkpoint))


def _modules(names: list[str] | None) -> frozenset[str] | None:
    """--lora-target-modules by the names of the packed layers; None: all."""
    return None if names is None else frozenset(lora.PACKED.get(name, name) for name in names)


def _divided(linear: Linear, sharded: int) -> int:
    """Elements for rank 1; with --fully-sharded-loras ranks divide what each has whole otherwise."""
    if linear.by_inputs:
        return linear.inputs + linear.outputs // sharded
    return linear.parts * linear.inputs // (sharded if linear.is_divided else 1) + linear.outputs


def _feed_forwards(
    checkpoint: Checkpoint, layout: Layout, can: frozenset[str]
) -> Iterator[tuple[Linear, int]]:
    hidden, moe = checkpoint.hidden_size, checkpoint.moe
    with_experts = sum(checkpoint.has_experts(layer) for layer in range(checkpoint.layers))
    dense = lora.feed_forward(hidden, checkpoint.intermediate_size // layout.tensor)
    yield from ((linear, checkpoint.layers - with_experts) for linear in dense)
    if moe is None:
        return
    if moe.shared_intermediate_size:
        shared = lora.feed_forward(hidden, moe.shared_intermediate_size // layout.tensor)
        yield from ((linear, with_experts) for linear in shared)
    experts = -(-moe.experts // layout.expert)
    yield from ((linear, with_experts * experts) for linear in _experts(checkpoint, moe, layout, can))


def _experts(checkpoint: Checkpoint, moe: Moe, layout: Layout, can: frozenset[str]) -> list[Linear]:
    """One expert (layers/fused_moe.py)."""
    hidden = checkpoint.hidden_size
    width = moe.intermediate_size // (1 if layout.expert > 1 else expert_ranks(layout))
    parts = 1 if "lora_fused_experts" in can else 2
    return [
        Linear("experts", hidden, 2 * width, parts=parts),
        Linear("experts", width, hidden, by_inputs=True),
    ]
