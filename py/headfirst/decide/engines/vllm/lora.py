"""LoRA in vLLM: the ranks that it accepts (config/lora.py, MaxLoRARanks; lora/peft_helper.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headfirst.decide.engines.base import AdapterNeeds

_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # values of --max-lora-rank
_DEFAULT = 16


def needs(ranks: Mapping[str, int | None], values: Mapping[str, Any]) -> AdapterNeeds:
    """--max-lora-rank for these adapters; a problem is a rank above the user's, or above all values."""
    known = {name: rank for name, rank in ranks.items() if rank is not None}
    unknown = [name for name in ranks if name not in known]
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
    reason = f"The largest rank of the adapters is {largest} ({name}); the default is {_DEFAULT}."
    arguments = {} if given or limit == _DEFAULT else {"--max-lora-rank": str(limit)}
    return AdapterNeeds(arguments, reason, "vLLM's config/lora.py", note)
