"""A Qwen3 checkpoint's files, from its config. Standard library only: the controller has no torch."""

from __future__ import annotations

import json
import math
import shutil
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

WEIGHTS = "model.safetensors"
Shapes = Mapping[str, tuple[int, ...]]
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


def shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Each tensor's shape, under its name in Qwen3-Embedding's repository."""
    hidden, head, inner = config["hidden_size"], config["head_dim"], config["intermediate_size"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    found: dict[str, tuple[int, ...]] = {"embed_tokens.weight": (config["vocab_size"], hidden)}
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
        found |= {f"layers.{layer}.{name}.weight": shape for name, shape in layer_shapes.items()}
    return found | {"norm.weight": (hidden,)}


def write(folder: Path, documents: Mapping[str, Any], tensors: Shapes, tokenizer: Path) -> None:
    """Write JSON documents, the tokenizer that is in the folder `tokenizer`, and the weights' header."""
    for name in _TOKENIZER:
        shutil.copyfile(tokenizer / name, folder / name)
    for name, document in documents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    (folder / WEIGHTS).write_bytes(_header(tensors))


def _header(tensors: Shapes) -> bytes:
    """The beginning of a safetensors file of these tensors in BF16."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in tensors.items():
        start, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text
