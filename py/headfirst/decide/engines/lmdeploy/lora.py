"""LoRA in LMDeploy 0.17.0 and 0.18.0 (PyTorch engine): the adapters that it accepts.

Source: lmdeploy/pytorch/models/patch.py (add_adapters), adapter/adapter.py (load_lora_weights).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headfirst.decide.engines.base import AdapterNeeds, Adapters
from headfirst.decide.model.adapter import AdapterConfig


def needs(adapters: Adapters, values: Mapping[str, Any]) -> AdapterNeeds:
    """What LMDeploy refuses of an adapter; it takes the ranks and the modules from their files."""
    for name, config in adapters.items():
        if config and (refusals := list(_refusals(config))):
            return AdapterNeeds(problem=f"LMDeploy does not load the adapter {name}: it has {refusals[0]}")
    if all(adapters.values()):
        return AdapterNeeds()
    return AdapterNeeds(note="LMDeploy's memory for it is not in the memory of the plan.")


def _refusals(config: AdapterConfig) -> Iterator[str]:
    """It takes tensors lora_A.weight and lora_B.weight alone (load_lora_weights)."""
    if "use_dora" in config.features:
        yield "DoRA"
    if config.saved_modules:
        yield f"modules_to_save={', '.join(config.saved_modules)}"
    if config.bias != "none":
        yield f"bias={config.bias}"
    if isinstance(config.targets, str):
        yield f"target_modules={config.targets}, which is no list of names"
