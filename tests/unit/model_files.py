"""Small real checkpoints for the tests: config.json, an index, and safetensors files with true headers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headfirst.common.safetensors_file import DTYPE_BITS

CONFIG: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 512,
    "max_position_embeddings": 1024,
    "q_lora_rank": 128,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 256,
    "first_k_dense_replace": 1,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}


def shard(tensors: dict[str, tuple[str, int]]) -> bytes:
    """A safetensors file of zeros: name -> (dtype, bytes)."""
    header, offset = {}, 0
    for name, (dtype, size) in tensors.items():
        header[name] = {
            "dtype": dtype,
            "shape": [size * 8 // DTYPE_BITS[dtype]],
            "data_offsets": [offset, offset + size],
        }
        offset += size
    text = json.dumps(header | {"__metadata__": {"format": "pt"}}).encode()
    return len(text).to_bytes(8, "little") + text + bytes(offset)


SHARDS = {
    "model-00001-of-00002.safetensors": shard(
        {"embed.weight": ("BF16", 64), "q.weight": ("F8_E4M3", 1024), "q.weight_scale_inv": ("F32", 16)}
    ),
    "model-00002-of-00002.safetensors": shard({"bias": ("F32", 8), "head.weight": ("BF16", 64)}),
}
INDEX = {
    "metadata": {"total_size": 1176},
    "weight_map": {
        "embed.weight": "model-00001-of-00002.safetensors",
        "q.weight": "model-00001-of-00002.safetensors",
        "q.weight_scale_inv": "model-00001-of-00002.safetensors",
        "bias": "model-00002-of-00002.safetensors",
        "head.weight": "model-00002-of-00002.safetensors",
    },
}


def write(folder: Path) -> Path:
    """Write the two-shard FP8 checkpoint into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    (folder / "model.safetensors.index.json").write_text(json.dumps(INDEX), encoding="utf-8")
    for name, content in SHARDS.items():
        (folder / name).write_bytes(content)
    return folder
