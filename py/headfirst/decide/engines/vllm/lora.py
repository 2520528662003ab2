"""LoRA in vLLM: ranks (config/lora.py, MaxLoRARanks), features (lora/peft_helper.py) and memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headfirst.decide.engines import lora
from headfirst.decide.engines.base import AdapterNeeds
from headfirst.decide.engines.layout import Layout
from headfirst.decide.model.adapter import FEATURES, AdapterConfig
from headfirst.decide.model.checkpoint import Checkpoint

_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # values of --max-lora-rank
_DEFAULT = 16


def needs(adapters: Mapping[str, AdapterConfig | None], values: Mapping[str, Any]) -> AdapterNeeds:
    """--max-lora-rank for these adapters; a problem is a rank above the user's, or above all values."""
    if refused := lora.refused(adapters, FEATURES):
        return AdapterNeeds(problem=f"{refused}, which vLLM refuses")
    known = {name: config.rank for name, config in adapters.items() if config is not None}
    unknown = [name for name in adapters if name not in known]
    given = values.get("max_lora_rank")
    name = max(known, key=lambda name: known[name], default=None)
    largest = known[name] if name else 0
    if largest > (given or _RANKS[-1]):
        most = f"accepts ranks up to {given} (--max-lora-rank)" if given else f"has ranks up to {_RANKS[-1]}"
        return AdapterNeeds(problem=f"the adapter {name} has rank {largest}, and vLLM {most}")
    limit = given or next(value for value in _RANKS if value >= (largest or _DEFAULT))
    note = ""
    if unknown:
        limit = max(limit, given or _DEFAULT)
        note = (
            f"The rank of {', '.join(unknown)} is not known before the download. vLLM accepts ranks up "
            f"to {limit} and ends at start with a larger one: engine_args=--max-lora-rank raises it."
        )
    arguments = {"--enable-lora": ("", "The inventory names adapters.")}
    if not given and limit != _DEFAULT:
        reason = f"The largest rank of the adapters is {largest} ({name}); the default is {_DEFAULT}."
        arguments["--max-lora-rank"] = (str(limit), reason)
    return AdapterNeeds(arguments, "vLLM's config/lora.py", note)


def adapter_bytes(checkpoint: Checkpoint, layout: Layout, values: Mapping[str, Any]) -> int:
    """What vLLM allocates for --max-loras adapters of --max-lora-rank, whatever these have."""
    if not values.get("enable_lora"):
        return 0
    rank, slots = values.get("max_lora_rank", _DEFAULT), values.get("max_loras", 1)
    return lora.adapter_bytes(checkpoint, layout, rank=rank, slots=slots, stages=layout.pipeline)
