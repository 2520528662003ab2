"""The demo's embedding model: a very small Qwen3-Embedding with random weights, made where it is needed.

Its vectors mean nothing; they are the same on every machine. Its tokenizer is that of the demo model.
Standard library only: the controller has no torch.
"""

from __future__ import annotations

import json
import math
import random
import shutil
import struct
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


def make(folder: Path, tokenizer: Path) -> None:
    """Write the checkpoint to `folder`, with the tokenizer that is in the folder `tokenizer`."""
    (folder / "1_Pooling").mkdir(parents=True, exist_ok=True)
    for name in _TOKENIZER:
        shutil.copyfile(tokenizer / name, folder / name)
    documents = {"config.json": CONFIG, "modules.json": _MODULES, "1_Pooling/config.json": _POOLING}
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    (folder / "model.safetensors").write_bytes(_safetensors(_shapes(CONFIG)))


def _shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Each tensor's shape, under its name on the hub."""
    hidden, head, inner = config["hidden_size"], config["head_dim"], config["intermediate_size"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    shapes: dict[str, tuple[int, ...]] = {"embed_tokens.weight": (config["vocab_size"], hidden)}
    for layer in range(config["num_hidden_layers"]):
        layer_shapes = {
            "input_layernorm": (hidden,),
            "self_attn.q_proj": (queries, hidden),
            "self_attn.k_proj": (keys, hidden),
            "self_attn.v_proj": (keys, hidden),
            "self_attn.o_proj": (hidden, queries),
            "self_attn.q_norm": (head,),
            "self_attn.k_norm": (head,),
            "post_attention_layernorm": (hidden,),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
        }
        shapes |= {f"layers.{layer}.{name}.weight": shape for name, shape in layer_shapes.items()}
    return shapes | {"norm.weight": (hidden,)}


def _safetensors(shapes: Mapping[str, tuple[int, ...]]) -> bytes:
    """A file of these tensors in BF16."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = bytearray()
    for name, shape in shapes.items():
        start = len(data)
        data += _values(name, shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, len(data)]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(data)


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
