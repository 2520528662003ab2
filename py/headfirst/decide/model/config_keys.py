"""The keys of a config.json by Hugging Face's names, whatever a family calls them, each one checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headfirst.common.convertible import config_parts
from headfirst.common.errors import InputError
from headfirst.common.untrusted import integer
from headfirst.decide.package_data import read_json

# Names of a key in ChatGLM, Hunyuan, Mixtral, gpt-oss, Gemma-4, GPT-2, Kimi, Step, Granite and Nemotron.
_ALIASES = {
    "hidden_size": ("n_embd", "d_model"),
    "intermediate_size": ("ffn_hidden_size", "n_inner"),
    "num_hidden_layers": ("num_layers", "n_layer"),
    "num_attention_heads": ("n_head",),
    "num_key_value_heads": ("multi_query_group_num", "num_kv_heads"),
    "head_dim": ("kv_channels", "attention_head_dim"),
    "max_position_embeddings": ("seq_length", "max_sequence_length", "n_positions", "model_max_length"),
    "n_routed_experts": ("num_experts", "num_local_experts", "moe_num_experts"),
    "num_experts_per_tok": (
        "num_experts_per_token",
        "moe_topk",
        "experts_per_token",
        "top_k_experts",
        "moe_k",
    ),
    "n_shared_experts": ("num_shared_expert", "moe_num_shared_experts", "num_shared_experts"),
    "moe_intermediate_size": ("expert_ffn_hidden_size",),
    "shared_expert_intermediate_size": (
        *("moe_shared_expert_intermediate_size", "shared_intermediate_size", "share_expert_dim"),
    ),
    "num_nextn_predict_layers": ("mtp_num_hidden_layers",),
    "sliding_window": ("sliding_window_size", "attention_chunk_size"),
    "mamba_num_heads": ("mamba_n_heads", "n_mamba_heads"),
    "mamba_head_dim": ("mamba_d_head", "mamba_headdim"),
    "ssm_state_size": ("mamba_d_state",),
    "n_groups": ("mamba_n_groups", "mamba_ngroups"),
    "conv_kernel": ("mamba_d_conv",),
}
_BY_LAYER = (
    *("n_routed_experts", "num_experts_per_tok", "n_shared_experts", "moe_intermediate_size"),
    "intermediate_size",
)
# The plan counts tensors layer by layer and tries numbers of ranks up to the heads.
_LIMITS = {"num_hidden_layers": 4096, "num_nextn_predict_layers": 64, "num_attention_heads": 4096}
_LARGEST = 2**31


def language_model(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The keys of the language model, with the defaults of its model_type for those that are left out."""
    config = config_parts(dict(config))[-1]
    kind, blocks = config.get("model_type"), config.get("layers_block_type")
    if isinstance(blocks, list):  # Nemotron-H lists its layers instead of counting them
        config = {"num_hidden_layers": len(blocks), **config}
    defaults = read_json(__package__, "config_defaults.json")
    return {**defaults.get(kind, {}), **config} if isinstance(kind, str) else config


class Keys:
    """Numbers of a config by Hugging Face's name of the key, whatever the family calls it."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values = values
        self._where = where

    def of(self, values: Mapping[str, Any]) -> Keys:
        """The keys of another object of the same file."""
        return Keys(values, self._where)

    def part(self, key: str) -> Keys | None:
        """The object below `key`; None where there is none."""
        nested = self.values.get(key)
        return Keys(nested, f"{key} in {self._where}") if isinstance(nested, dict) else None

    def entries(self, key: str, limit: int) -> list[Any]:
        """The first `limit` entries of a list; empty where the value is something else."""
        listed = self.values.get(key)
        return listed[:limit] if isinstance(listed, list) else []

    def number(self, key: str, default: int | None = None) -> int:
        """The value, at least 1; of a list with a value for each layer the largest. Without
        `default` the key must be there."""
        names = (key, *_ALIASES.get(key, ()))
        value = next((self.values[name] for name in names if self.values.get(name) is not None), None)
        if key in _BY_LAYER and isinstance(value, list) and len(value) <= _LIMITS["num_hidden_layers"]:
            value = max((item for item in value if isinstance(item, int)), default=0)
        if default is not None and not value:
            return default
        if not isinstance(value, int):
            raise InputError(
                f"config.json has no usable {key!r}, which the plan needs.",
                where=self._where,
                hint="Check on the model's page that it is a decoder-only language model.",
            )
        return integer(
            value,
            what=f"{key} in config.json",
            where=self._where,
            low=1,
            high=_LIMITS.get(key, _LARGEST),
        )
