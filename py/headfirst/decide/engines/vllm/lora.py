"""LoRA in vLLM 0.32.0 and 0.33.0: the adapters that it accepts.

Source: config/lora.py (LoRAConfig, MaxLoRARanks), lora/peft_helper.py (validate_legal), lora/layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headfirst.decide.engines.base import AdapterNeeds, Adapters
from headfirst.decide.model.adapter import AdapterConfig

_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # values of --max-lora-rank
_DEFAULT = 16
_SAVED = frozenset({"classifier", "score"})
# Values of init_lora_weights that leave the base weights as they are.
_INITS = frozenset({"", "gaussian", "eva", "orthogonal", "mica", "lora_ga"})
_REFUSED = {
    "use_dora": "DoRA",
    "lora_bias": "a LoRA bias (lora_bias)",
    "alora_invocation_tokens": "an activated LoRA (alora_invocation_tokens)",
    "layer_replication": "layer_replication",
    "use_bdlora": "a block-diagonal LoRA (use_bdlora)",
    "use_qalora": "QALoRA (use_qalora)",
}


def needs(adapters: Adapters, values: Mapping[str, Any]) -> AdapterNeeds:
    """--max-lora-rank for these adapters; a problem is what vLLM refuses of one."""
    given = values.get("max_lora_rank")
    for name, config in adapters.items():
        if config and (refusals := list(_refusals(config, given))):
            return AdapterNeeds(problem=f"vLLM does not load the adapter {name}: it has {refusals[0]}")
    known = {name: config.largest_rank for name, config in adapters.items() if config}
    limit = rank_limit(tuple(adapters.values()), values)
    note = ""
    if len(known) < len(adapters):
        note = (
            f"vLLM accepts ranks up to {limit} and ends at start with a larger one: "
            "engine_args=--max-lora-rank raises it."
        )
    arguments = {} if given or limit == _DEFAULT else {"--max-lora-rank": str(limit)}
    name = max(known, key=lambda name: known[name], default="")
    largest = known.get(name, 0)
    reason = f"The largest rank of the adapters is {largest} ({name}); the default is {_DEFAULT}."
    return AdapterNeeds(arguments, reason, "vLLM's config/lora.py", note)


def rank_limit(adapters: tuple[AdapterConfig | None, ...], values: Mapping[str, Any]) -> int:
    """--max-lora-rank: the user's, or the least of its values for the adapters; one not read may have 16."""
    if given := values.get("max_lora_rank"):
        return int(given)
    largest = max((config.largest_rank if config else _DEFAULT for config in adapters), default=_DEFAULT)
    return next((value for value in _RANKS if value >= largest), _RANKS[-1])


def _refusals(config: AdapterConfig, given: int | None) -> Iterator[str]:
    if config.absent:
        yield f"no {' and no '.join(config.absent)}"
    if saved := [name for name in config.saved_modules if name not in _SAVED]:
        yield f"modules_to_save={', '.join(saved)}, and only a classifier or score can be saved"
    for name, title in _REFUSED.items():
        if name in config.features:
            yield title
    if config.init.lower() not in _INITS:
        yield f"init_lora_weights={config.init}, which changes the base model's weights"
    if config.bias != "none":
        yield f"bias={config.bias}"
    if config.largest_rank > (given or _RANKS[-1]):
        yield f"rank {config.largest_rank}, and " + (
            f"--max-lora-rank is {given}" if given else f"ranks go up to {_RANKS[-1]}"
        )
