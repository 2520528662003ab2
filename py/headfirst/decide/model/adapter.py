"""A LoRA adapter, described: what engines read of its adapter_config.json (PEFT's LoraConfig)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AdapterConfig:
    """Of the keys of adapter_config.json those that an engine loads or refuses.

    `rank` is PEFT's `r`; `largest_rank` counts rank_pattern too. `targets` are the names of the adapted
    modules, or one text: PEFT's `all-linear`, a pattern, or "" for null, beside target_parameters alone.
    `init` is init_lora_weights where that is a name. `features` are those of FEATURES that are set, and
    rank_pattern where that has other ranks. `absent` are REQUIRED keys that are not there.
    """

    rank: int
    largest_rank: int
    targets: tuple[str, ...] | str = ()
    peft_type: str = "LORA"
    bias: str = "none"
    saved_modules: tuple[str, ...] = ()  # modules_to_save
    init: str = ""
    features: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


REQUIRED = ("lora_alpha", "target_modules")
"""Keys beside `r` that an adapter must have: engines end at start without them."""

FEATURES = (
    "use_dora",
    "lora_bias",
    "alora_invocation_tokens",
    "layer_replication",
    "use_bdlora",
    "use_qalora",
)
"""Keys that change what an adapter computes."""
