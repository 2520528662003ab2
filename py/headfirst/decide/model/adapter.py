"""A LoRA adapter as its adapter_config.json describes it (PEFT, tuners/lora/config.py)."""

from __future__ import annotations

from dataclasses import dataclass

# Keys with which an adapter is more than two matrices beside each linear layer.
FEATURES = (
    "use_dora",
    "modules_to_save",
    "lora_bias",
    "init_lora_weights",
    "alora_invocation_tokens",
    "layer_replication",
    "use_bdlora",
    "use_qalora",
)


@dataclass(frozen=True)
class AdapterConfig:
    """`rank` is the largest of its matrices; `features` are those of FEATURES that it uses.

    `pattern`: its target_modules is a regular expression, not a list of names or all-linear.
    """

    rank: int
    features: frozenset[str] = frozenset()
    pattern: bool = False
