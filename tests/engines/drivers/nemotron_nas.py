"""The configuration class of Nemotron-NAS, which the hub has beside the model and Transformers lacks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from transformers import AutoConfig, LlamaConfig


class NemotronNasConfig(LlamaConfig):
    """Blocks as objects with attributes, as both engines read them."""

    model_type = "nemotron-nas"
    has_no_defaults_at_init = True

    def __init__(self, block_configs: list[dict[str, Any]] | None = None, **rest: Any) -> None:
        super().__init__(**{key: value for key, value in rest.items() if value is not None})
        self.block_configs = [
            SimpleNamespace(**{name: SimpleNamespace(**part) for name, part in block.items()})
            for block in block_configs or []
        ]

    def to_dict(self) -> dict[str, Any]:
        """Without the blocks, which are no JSON."""
        return {key: value for key, value in super().to_dict().items() if key != "block_configs"}


def register() -> None:
    """Let Transformers find it."""
    AutoConfig.register(NemotronNasConfig.model_type, NemotronNasConfig, exist_ok=True)
