"""The model with which `deploy rehearse --acceptance` starts a cluster: a Qwen3 of 1.2 GB without weights.

Dummies take their place, so that the file has its header, and a hole for the rest.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

from headfirst.control.demo import qwen3
from headfirst.control.demo.embedding import CONFIG as _SMALL

# 192 heads divide by 2 to 64 ranks, and by 3 times these; 16 layers by as many stages of a pipeline.
CONFIG = {
    **_SMALL,
    "head_dim": 64,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "max_position_embeddings": 32768,
    "num_attention_heads": 192,
    "num_hidden_layers": 16,
}


def make(folder: Path, tokenizer: Path) -> None:
    """Write the checkpoint to `folder`, with the tokenizer that is in the folder `tokenizer`."""
    shapes = {f"model.{name}": shape for name, shape in qwen3.shapes(CONFIG).items()}
    qwen3.write(folder, {"config.json": CONFIG}, shapes, tokenizer)
    weights = folder / qwen3.WEIGHTS
    os.truncate(weights, weights.stat().st_size + 2 * sum(math.prod(shape) for shape in shapes.values()))
