"""The demo model's config.json: DeepSeek-R1's fields, with sizes that two CPU cores can carry."""

from __future__ import annotations

import math
from typing import Any

import torch

BLOCK = 128  # edge of the square that shares one FP8 scale

# 24 heads and widths of 48·n divide by 2, 3, 4, 6 and 8 ranks; kv_lora_rank and qk_rope_head_dim are the real
# model's, the only sizes that vLLM's attention on CPUs has, and 576, their sum, is no multiple of the block.
CONFIG: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
    "ep_size": 1,
    "first_k_dense_replace": 1,
    "hidden_act": "silu",
    "hidden_size": 192,
    "initializer_range": 0.02,
    "intermediate_size": 384,
    "kv_lora_rank": 512,
    "max_position_embeddings": 4096,
    "model_type": "deepseek_v3",
    "moe_intermediate_size": 48,
    "moe_layer_freq": 1,
    "n_group": 4,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_attention_heads": 24,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 6,
    "num_key_value_heads": 24,
    "num_nextn_predict_layers": 0,
    "q_lora_rank": 96,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 64,
    "quantization_config": {
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "quant_method": "fp8",
        "weight_block_size": [BLOCK, BLOCK],
    },
    "rms_norm_eps": 1e-06,
    "rope_scaling": {
        "beta_fast": 45,  # with these, a frequency in four is one of TRAINED
        "beta_slow": 0.6,
        "factor": 4,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 1024,
        "type": "yarn",
    },
    "rope_theta": 10000,
    "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid",
    "tie_word_embeddings": False,
    "topk_group": 2,
    "topk_method": "noaux_tc",
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "v_head_dim": 24,
    "vocab_size": 768,
}

# What is trained: a quarter of the latent and of the rotary dimensions; `widened` makes the rest.
TRAINED: dict[str, Any] = {
    **{key: value for key, value in CONFIG.items() if key != "quantization_config"},
    "kv_lora_rank": 128,
    "qk_rope_head_dim": 16,
    "rope_scaling": CONFIG["rope_scaling"] | {"beta_fast": 32, "beta_slow": 1},
}

# The engine takes its sampling defaults from this file; temperature 0 keeps the answers the same every time.
GENERATION_CONFIG: dict[str, Any] = {
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
    "do_sample": False,
    "temperature": 0.0,
}


def without_quantization() -> dict[str, Any]:
    """Return the config of the same model after its weights were converted to BF16."""
    return {key: value for key, value in CONFIG.items() if key != "quantization_config"}


_RANKS, _ROTARY, _NOPE = "kv_lora_rank", "qk_rope_head_dim", CONFIG["qk_nope_head_dim"]
_TIMES = CONFIG[_RANKS] // TRAINED[_RANKS]
_HEADS = CONFIG["num_attention_heads"]


def widened(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors (hub names) of the model CONFIG that answers as these of the model TRAINED."""
    return {name: _widen(name, tensor) for name, tensor in tensors.items()}


def _widen(name: str, tensor: torch.Tensor) -> torch.Tensor:
    if name.endswith("self_attn.kv_a_proj_with_mqa.weight"):
        latent, rotary = tensor.split([TRAINED[_RANKS], TRAINED[_ROTARY]])
        return torch.cat([_padded(latent, CONFIG[_RANKS]), _spread(rotary)])
    if name.endswith("self_attn.kv_a_layernorm.weight"):
        # The mean square of the latent is over zeros, too: the norm's result is sqrt(_TIMES) times as long.
        return _padded(tensor, CONFIG[_RANKS]) / math.sqrt(_TIMES)
    if name.endswith("self_attn.kv_b_proj.weight"):
        return _padded(tensor.T, CONFIG[_RANKS]).T
    if name.endswith("self_attn.q_b_proj.weight"):
        heads = tensor.view(_HEADS, -1, tensor.shape[1])
        wide = torch.cat([torch.cat([head[:_NOPE], _spread(head[_NOPE:])]) for head in heads])
        # Attention divides by the root of a head's length.
        return wide * math.sqrt((_NOPE + CONFIG[_ROTARY]) / (_NOPE + TRAINED[_ROTARY]))
    return tensor


def _padded(tensor: torch.Tensor, rows: int) -> torch.Tensor:
    return torch.cat([tensor, tensor.new_zeros(rows - len(tensor), *tensor.shape[1:])])


def _spread(rotary: torch.Tensor) -> torch.Tensor:
    """Each pair of rows to where its frequency is: theta^(-2i/16) is theta^(-2j/64) for j = 4i."""
    pairs = rotary.view(len(rotary) // 2, 2, -1)
    wide = pairs.new_zeros(len(pairs), _TIMES, 2, pairs.shape[2])
    wide[:, 0] = pairs
    return wide.flatten(end_dim=2)
