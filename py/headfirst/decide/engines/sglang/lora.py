"""LoRA in SGLang 0.5.22 and 0.5.23: the adapters that it accepts, and the buffers that it allocates for them.

Source: sglang/srt/lora: lora_config.py, lora.py (peft_type), lora_manager.py (validate_new_adapter,
init_lora_shapes), mem_pool.py (init_buffers), utils.py (get_hidden_dim).
"""

from __future__ import annotations

from collections.abc import Iterator

from headfirst.decide.engines import lora
from headfirst.decide.engines.base import Adapters, AdapterSlots, ArgumentNeeds, Values
from headfirst.decide.engines.layout import Layout
from headfirst.decide.model.adapter import AdapterConfig
from headfirst.decide.model.checkpoint import Checkpoint, Moe

# validate_lora_batch counts requests without an adapter as those of one more.
SLOTS = AdapterSlots("--max-loras-per-batch", default=8, base=True)
_SIZES = frozenset({"max_lora_rank", "lora_target_modules"})  # without them, SGLang reads the adapters
# Their buffers have other sizes than those counted here: get_hidden_dim in models/*.py, and the record of
# tools/sglang_lora.py.
_OTHER_SIZES = (
    *("DeepseekV4", "Gemma3n", "Gemma4", "InternS2", "Inkling", "KimiLinear", "Laguna", "Llama4", "MiMoV2"),
    *("Nemotron", "Qwen3Next"),
)
_ALL = ("all", "all-linear")
_ENDS = ("embed_tokens", "lm_head")
# Modules for which get_hidden_dim has sizes, by the beginning of the architecture; SGLang ends at start with
# others. Gemma 4's reads sizes that the config of Transformers 5.19 has for each layer alone.
_SIZED = frozenset({"qkv_proj", "o_proj", "gate_up_proj", "down_proj", *_ENDS})
_OWN_SIZED: dict[str, frozenset[str]] = {
    "Gemma4": frozenset(),
    "Llama4ForConditional": frozenset({"qkv_proj", "o_proj"}),
    "NemotronH": _SIZED | {"up_proj", "in_proj", "out_proj", "fc1_latent_proj", "fc2_latent_proj"},
    "Qwen3_5ForConditional": _SIZED | {"in_proj_qkvz", "out_proj"},
    "Qwen3_5MoeForConditional": _SIZED | {"in_proj_qkvz", "out_proj"},
}
_LATENT_SIZED = frozenset({"fused_qkv_a_proj_with_mqa", "q_b_proj", "kv_b_proj"})
_INDEX_SIZED = frozenset({"indexer.wq_b", "indexer.wk", "indexer.weights_proj"})
_OTHER_SIZED = ("Gemma3n", "Inkling", "InternS2", "NemotronH_Nano")  # their classes have further modules
# `all` of these has modules without sizes (lora/utils.py, auto_detect_lora_target_modules).
_ALL_UNSIZED = ("DeepseekV4", "Gemma4", "Lfm2", "Llama4", "Qwen3Next", "Qwen3_5MoeForCausalLM")
# lora/utils.py, get_normalized_target_modules.
_PACKED = {
    **lora.PACKED,
    **dict.fromkeys(("vocab_emb", "embeddings", "word_embeddings"), "embed_tokens"),
    **dict.fromkeys(("output", "unembed_tokens"), "lm_head"),
    **dict.fromkeys(("q_a_proj", "kv_a_proj_with_mqa"), "fused_qkv_a_proj_with_mqa"),
    **{name.rpartition(".")[2]: name for name in _INDEX_SIZED},
}


def needs(adapters: Adapters, values: Values) -> ArgumentNeeds:
    """What SGLang refuses of an adapter; it takes the ranks and the modules from their files."""
    if problem := lora.refusal("SGLang", adapters, lambda config: _refusals(config, values)):
        return ArgumentNeeds(problem=problem)
    if all(adapters.values()) or values.keys() >= _SIZES:
        return ArgumentNeeds()
    return ArgumentNeeds(note="SGLang's buffers for what was not read are not in the memory of the plan.")


def _refusals(config: AdapterConfig, values: Values) -> Iterator[str]:
    if config.absent:
        yield f"no {' and no '.join(config.absent)}"
    if config.peft_type.lower() != "lora":
        yield f"peft_type={config.peft_type}"
    if "use_dora" in config.features:
        yield "DoRA"
    if "rank_pattern" in config.features:
        yield "modules of several ranks (rank_pattern)"
    if isinstance(config.targets, str) and config.targets not in _ALL:
        yield f"target_modules={config.targets or 'null'}, which is no list of names"
    max_rank = values.get("max_lora_rank")
    if max_rank and config.rank > max_rank:
        yield f"rank {config.rank}, and --max-lora-rank is {max_rank}"
    allowed = _modules(values.get("lora_target_modules") or ("all",))
    others = _modules(config.targets) - allowed - {"all"}
    if others and "all" not in allowed:
        yield f"modules that --lora-target-modules lacks: {', '.join(sorted(others))}"


def problems(checkpoint: Checkpoint, values: Values) -> list[str]:
    """One clause where SGLang ends at start: it has no sizes for an adapted module of this architecture."""
    name = checkpoint.architecture
    if not lora.are_served(checkpoint, values) or name.startswith(_OTHER_SIZED):
        return []
    sized, modules = sized_modules(checkpoint), _adapted(checkpoint, values)
    if not sized:
        return [f"SGLang has no sizes for adapters of {name}"]
    unsized = sorted(modules - sized - {"all"})
    if "all" in modules and not are_all_sized(checkpoint):
        unsized.append("all modules")
    return [f"SGLang has no sizes for {name}'s adapters of {', '.join(unsized)}"] if unsized else []


def sized_modules(checkpoint: Checkpoint) -> frozenset[str]:
    """Modules, by SGLang's names, that adapters of this architecture can have."""
    own_sizes = (sized for name, sized in _OWN_SIZED.items() if checkpoint.architecture.startswith(name))
    latent = _LATENT_SIZED if checkpoint.mla else frozenset()
    index = _INDEX_SIZED if checkpoint.mla and checkpoint.index else frozenset()
    return next(own_sizes, _SIZED | latent | index)


def are_all_sized(checkpoint: Checkpoint) -> bool:
    """Whether an adapter can have all modules of this architecture (`all-linear`)."""
    return not checkpoint.architecture.startswith(_ALL_UNSIZED)


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


def is_known(checkpoint: Checkpoint, values: Values) -> bool:
    """Whether `buffer_bytes` is what is allocated: each module is counted, and no adapter is missing."""
    sized = all(checkpoint.adapters) or values.keys() >= _SIZES
    if checkpoint.architecture.startswith(_OTHER_SIZES) or not sized:
        return False
    counted = {linear.name for linear in lora.attention(checkpoint, 1)} | {*_ENDS, "all"}
    counted |= {linear.name for linear in lora.feed_forward(1, 1)}
    return counted.issuperset(_adapted(checkpoint, values))


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
