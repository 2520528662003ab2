"""The demo's embedding model: a very small Qwen3-Embedding with random weights, made where it is needed.

Its vectors mean nothing; they are the same on every machine. Its tokenizer is that of the demo model.
Standard library only: the controller has no torch.
"""

from __future__ import annotations

import math
import random
from array import array
from pathlib import Path
from typing import Any

from headfirst.control.demo import qwen3

# Qwen3-Embedding's fields. The vocabulary is the demo tokenizer's; 8 heads divide by 2, 4 and 8 ranks, and
# vLLM's attention on CPUs has kernels for heads of 32.
CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "head_dim": 32,
    "hidden_act": "silu",
    "hidden_size": 64,
    "initializer_range": 0.02,
    "intermediate_size": 128,
    "max_position_embeddings": 4096,
    "model_type": "qwen3",
    "num_attention_heads": 8,
    "num_hidden_layers": 2,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 768,
}
# As in Qwen3-Embedding's repository: the last token's vector, with length 1.
_MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
]
_POOLING = {
    "word_embedding_dimension": CONFIG["hidden_size"],
    "pooling_mode_cls_token": False,
    "pooling_mode_mean_tokens": False,
    "pooling_mode_max_tokens": False,
    "pooling_mode_lasttoken": True,
}


def make(folder: Path, tokenizer: Path) -> None:
    """Write the checkpoint to `folder`, with the tokenizer that is in the folder `tokenizer`."""
    documents = {"config.json": CONFIG, "modules.json": _MODULES, "1_Pooling/config.json": _POOLING}
    shapes = qwen3.shapes(CONFIG)
    qwen3.write(folder, documents, shapes, tokenizer)
    with (folder / qwen3.WEIGHTS).open("ab") as file:
        file.writelines(_values(name, shape) for name, shape in shapes.items())


def _values(name: str, shape: tuple[int, ...]) -> bytes:
    """BF16 values: ones for a norm, else evenly spread with a variance of 1 / inputs, from the name alone."""
    if len(shape) == 1:
        floats = array("f", [1.0] * shape[0])
    else:
        limit, drawn = math.sqrt(3 / shape[1]), random.Random(name)  # noqa: S311 - not a secret
        floats = array("f", [drawn.uniform(-limit, limit) for _ in range(math.prod(shape))])
    short = bytearray(2 * len(floats))
    short[0::2], short[1::2] = floats.tobytes()[2::4], floats.tobytes()[3::4]  # the upper half of a float32
    return bytes(short)
