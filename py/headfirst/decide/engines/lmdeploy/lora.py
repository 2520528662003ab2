"""LoRA in LMDeploy 0.18.0 (PyTorch engine): what adapters take.

Source: lmdeploy/pytorch/models/patch.py (add_adapters).
"""

from __future__ import annotations

from headfirst.decide.engines import lora
from headfirst.decide.engines.base import Adapters, ArgumentNeeds, Values
from headfirst.decide.engines.layout import Layout
from headfirst.decide.model.checkpoint import Checkpoint


def needs(adapters: Adapters, values: Values) -> ArgumentNeeds:
    """LMDeploy takes the ranks and the modules from the adapters' files."""
    if all(adapters.values()):
        return ArgumentNeeds()
    return ArgumentNeeds(note="What was not read is not in the memory of the plan.")


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
