"""LoRA in LMDeploy 0.17.0 and 0.18.0 (PyTorch engine): the adapters that it accepts, and what they take.

Source: lmdeploy/pytorch/models/patch.py (add_adapters), adapter/adapter.py (load_lora_weights).
"""

from __future__ import annotations

from collections.abc import Iterator

from headfirst.decide.engines import lora
from headfirst.decide.engines.base import Adapters, ArgumentNeeds, Values
from headfirst.decide.engines.layout import Layout
from headfirst.decide.model.adapter import AdapterConfig
from headfirst.decide.model.checkpoint import Checkpoint


def needs(adapters: Adapters, values: Values) -> ArgumentNeeds:
    """What LMDeploy refuses of an adapter; it takes the ranks and the modules from their files."""
    if problem := lora.refusal("LMDeploy", adapters, _refusals):
        return ArgumentNeeds(problem=problem)
    if all(adapters.values()):
        return ArgumentNeeds()
    return ArgumentNeeds(note="What was not read is not in the memory of the plan.")


def _refusals(config: AdapterConfig) -> Iterator[str]:
    """It takes tensors lora_A.weight and lora_B.weight alone (load_lora_weights)."""
    if "use_dora" in config.features:
        yield "DoRA"
    if config.saved_modules:
        yield f"modules_to_save={', '.join(config.saved_modules)}"
    if config.bias != "none":
        yield f"bias={config.bias}"
    if isinstance(config.targets, str):
        yield f"target_modules={config.targets or 'null'}, which is no list of names"


def is_known(checkpoint: Checkpoint) -> bool:
    """Whether `adapter_bytes` counts all that adapters of this model can have: not of experts, nor of MLA."""
    return checkpoint.moe is None and checkpoint.mla is None and lora.is_known(checkpoint)


def adapter_bytes(checkpoint: Checkpoint, layout: Layout) -> int:
    """Bytes on a rank of the adapters that were read; a module has as many rows as their ranks together."""
    modules = _modules(checkpoint, layout.tensor)
    elements = sum(
        config.rank * modules.get(target.rpartition(".")[2], 0)
        for config in checkpoint.adapters
        if config
        for target in config.targets
    )
    return checkpoint.layers * elements * lora.element_bytes(checkpoint)


def _modules(checkpoint: Checkpoint, ranks: int) -> dict[str, int]:
    """Inputs and outputs together of a layer's modules that `ranks` divide."""
    hidden, width = checkpoint.hidden_size, checkpoint.intermediate_size // ranks
    query = checkpoint.attention_heads * checkpoint.head_dim // ranks
    cached = max(1, checkpoint.kv_heads // ranks) * checkpoint.head_dim
    outputs = {"q_proj": query, "k_proj": cached, "v_proj": cached, "o_proj": query}
    outputs |= dict.fromkeys(("gate_proj", "up_proj", "down_proj"), width)
    return {name: hidden + size for name, size in outputs.items()}
