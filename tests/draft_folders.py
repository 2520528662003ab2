"""Folders of models that draft: a config.json, and a shard whose tensors are a hole in the file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

EAGLE3: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 1,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "draft_vocab_size": 32000,
    "max_position_embeddings": 40960,
}
"""Of Qwen3-8B, as AngelSlim/Qwen3-8B_eagle3 has it."""

SPECULATORS: dict[str, Any] = {
    "architectures": ["Eagle3Speculator"],
    "speculators_model_type": "eagle3",
    "draft_vocab_size": 32000,
    "speculators_config": {
        "algorithm": "eagle3",
        "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 5}],
        "verifier": {"architectures": ["Qwen3ForCausalLM"], "name_or_path": "Qwen/Qwen3-8B"},
    },
    "transformer_layer_config": {
        key: value for key, value in EAGLE3.items() if key not in ("draft_vocab_size", "architectures")
    },
}
"""The same in the format of speculators."""

EAGLE3_TENSORS: dict[str, Sequence[int]] = {
    "fc.weight": (4096, 3 * 4096),
    "midlayer.self_attn.q_proj.weight": (4096, 8192),
    "midlayer.self_attn.k_proj.weight": (1024, 8192),
    "midlayer.self_attn.v_proj.weight": (1024, 8192),
    "midlayer.self_attn.o_proj.weight": (4096, 4096),
    "midlayer.mlp.gate_proj.weight": (12288, 4096),
    "midlayer.mlp.up_proj.weight": (12288, 4096),
    "midlayer.mlp.down_proj.weight": (4096, 12288),
    "lm_head.weight": (32000, 4096),
}


def draft_folder(
    folder: Path,
    config: Mapping[str, Any] = EAGLE3,
    tensors: Mapping[str, Sequence[int]] = EAGLE3_TENSORS,
    dtype: str = "BF16",
) -> Path:
    """`folder` with the files of a draft; every tensor is of `dtype`, BF16 or F8_E4M3."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    header, end = {}, 0
    for name, shape in tensors.items():
        size = (2 if dtype == "BF16" else 1) * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
    return folder
