"""LoRA in SGLang 0.5.22 and 0.5.23: the adapters that it accepts.

Source: sglang/srt/lora: lora_config.py, lora.py (peft_type), lora_manager.py (validate_new_adapter,
init_lora_shapes), mem_pool.py (init_buffers).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headfirst.decide.engines.base import AdapterNeeds, Adapters
from headfirst.decide.model.adapter import AdapterConfig

_ALL = ("all", "all-linear")
# lora/utils.py, get_normalized_target_modules.
_PACKED = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj"), "qkv_proj"),
    **dict.fromkeys(("gate_proj", "up_proj"), "gate_up_proj"),
    **dict.fromkeys(("vocab_emb", "embeddings", "word_embeddings"), "embed_tokens"),
    **dict.fromkeys(("output", "unembed_tokens"), "lm_head"),
    **dict.fromkeys(("q_a_proj", "kv_a_proj_with_mqa"), "fused_qkv_a_proj_with_mqa"),
}


def needs(adapters: Adapters, values: Mapping[str, Any]) -> AdapterNeeds:
    """What SGLang refuses of an adapter; it takes the ranks and the modules from their files."""
    for name, config in adapters.items():
        if config and (refusals := list(_refusals(config, values))):
            return AdapterNeeds(problem=f"SGLang does not load the adapter {name}: it has {refusals[0]}")
    if all(adapters.values()) or "max_lora_rank" in values:
        return AdapterNeeds()
    return AdapterNeeds(note="SGLang's buffers for it are not in the memory of the plan.")


def _refusals(config: AdapterConfig, values: Mapping[str, Any]) -> Iterator[str]:
    if config.absent:
        yield f"no {' and no '.join(config.absent)}"
    if config.peft_type.lower() != "lora":
        yield f"peft_type={config.peft_type}"
    if "use_dora" in config.features:
        yield "DoRA"
    if "rank_pattern" in config.features:
        yield "modules of several ranks (rank_pattern)"
    if isinstance(config.targets, str) and config.targets not in _ALL:
        yield f"target_modules={config.targets}, which is no list of names"
    given = values.get("max_lora_rank")
    if given and config.rank > given:
        yield f"rank {config.rank}, and --max-lora-rank is {given}"
    allowed = _modules(values.get("lora_target_modules") or ("all",))
    others = _modules(config.targets) - allowed - {"all"}
    if others and "all" not in allowed:
        yield f"modules that --lora-target-modules lacks: {', '.join(sorted(others))}"


def _modules(names: tuple[str, ...] | list[str] | str) -> frozenset[str]:
    """Names as SGLang has them, {"all"} for PEFT's shorthands."""
    if isinstance(names, str):
        return frozenset({"all"})
    last = (name.rpartition(".")[2] for name in names)
    return frozenset(_PACKED.get(name, name) for name in last)
