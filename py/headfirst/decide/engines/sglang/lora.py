"""LoRA in SGLang: what it refuses (lora/lora_manager.py) and the memory (lora/mem_pool.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headfirst.decide.engines import lora
from headfirst.decide.engines.base import AdapterNeeds
from headfirst.decide.engines.layout import Layout
from headfirst.decide.model.adapter import AdapterConfig
from headfirst.decide.model.checkpoint import Checkpoint

_SLOTS = 8  # --max-loras-per-batch


def needs(adapters: Mapping[str, AdapterConfig | None], values: Mapping[str, Any]) -> AdapterNeeds:
    """--max-lora-rank, which SGLang would take from the adapters too, so that the memory is counted."""
    if refused := lora.refused(adapters, {"use_dora"}):
        return AdapterNeeds(problem=f"{refused}, which SGLang refuses")
    given = values.get("max_lora_rank")
    known = {name: config for name, config in adapters.items() if config is not None}
    for name, config in known.items():
        if config.pattern and not values.get("lora_target_modules"):
            return AdapterNeeds(
                problem=f"target_modules of the adapter {name} is a regular expression, which SGLang does "
                "not read without --lora-target-modules"
            )
        if config.rank > (given or config.rank):
            return AdapterNeeds(
                problem=f"the adapter {name} has rank {config.rank}, and --max-lora-rank is {given}"
            )
    arguments = {"--enable-lora": ("", "The inventory names adapters.")}
    unknown = [name for name in adapters if name not in known]
    note = ""
    if unknown and not given:
        note = (
            f"The rank of {', '.join(unknown)} is not known before the download, so the memory of adapters "
            "is not counted: SGLang keeps it beside the weights."
        )
    elif not given:
        name = max(known, key=lambda name: known[name].rank)
        reason = f"The largest rank of the adapters is {known[name].rank} ({name})."
        arguments["--max-lora-rank"] = (str(known[name].rank), reason)
    return AdapterNeeds(arguments, "SGLang's lora/lora_manager.py", note)


def adapter_bytes(checkpoint: Checkpoint, layout: Layout, values: Mapping[str, Any]) -> int:
    """What SGLang allocates for --max-loras-per-batch adapters that have every matrix, in each stage."""
    rank = values.get("max_lora_rank")
    if not values.get("enable_lora") or not rank:
        return 0
    slots = values.get("max_loras_per_batch", _SLOTS)
    return lora.adapter_bytes(checkpoint, layout, rank=rank, slots=slots, stages=1)
