"""A LoRA adapter, described: what a plan needs of its adapter_config.json (PEFT's LoraConfig)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AdapterConfig:
    """`rank` is PEFT's `r`; `largest_rank` counts rank_pattern too.

    `targets` are the names of the adapted modules, or one text: PEFT's `all-linear`, a pattern, or "" for
    null, beside target_parameters alone.
    """

    rank: int
    largest_rank: int
    targets: tuple[str, ...] | str = ()
