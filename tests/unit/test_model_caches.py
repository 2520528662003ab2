"""What the layers of published models keep, read from their config.json."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.model.config import WeightFiles, from_config

BASE = {
    "architectures": ["XForCausalLM"],
    "hidden_size": 4096,
    "max_position_embeddings": 1024,
    "num_attention_heads": 32,
    "num_hidden_layers": 8,
    "num_key_value_heads": 8,
    "vocab_size": 1000,
}


def described(**changes: Any) -> Checkpoint:
    return from_config(
        json.loads(json.dumps({**BASE, **changes})),
        id="x/x",
        revision=None,
        weights=WeightFiles(10**9, ()),
        source="hub",
        where="config.json",
    )


def test_kimi_delta_attention() -> None:
    """Kimi-K3: every fourth layer has a latent cache; layers count from 1."""
    model = described(
        kv_lora_rank=512,
        linear_attn_config={
            "full_attn_layers": [4, 8],
            "kda_layers": [1, 2, 3, 5, 6, 7],
            "head_dim": 128,
            "num_heads": 96,
            "short_conv_kernel_size": 4,
        },
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
    )
    assert Counter(model.layer_types) == {"linear": 6, "full": 2}
    assert model.layer_types[3] == "full"
    state = model.recurrent
    assert state is not None
    assert (state.kind, state.channels, state.heads, state.rows) == ("kda", 3 * 96 * 128, 96, 128)
    assert model.full_kv is None


def test_nemotron_h() -> None:
    model = described(
        conv_kernel=4,
        hybrid_override_pattern="MEMEM*E-",
        mamba_head_dim=64,
        mamba_num_heads=64,
        mamba_ssm_cache_dtype="float32",
        moe_intermediate_size=1856,
        moe_shared_expert_intermediate_size=3712,
        n_groups=8,
        n_routed_experts=128,
        n_shared_experts=1,
        ssm_state_size=128,
    )
    state = model.recurrent
    assert state is not None
    assert (state.kind, state.channels, state.groups, state.columns, state.dtype) == (
        "mamba2",
        4096,
        8,
        128,
        "float32",
    )
    assert model.moe is not None
    assert model.moe.shared_intermediate_size == 3712
    assert model.moe.dense_layers == (0, 2, 4, 5, 7)


def test_lfm2_and_ling() -> None:
    convolution = described(conv_L_cache=3, layer_types=["conv", "full_attention"] * 4).recurrent
    assert convolution is not None
    assert (convolution.kind, convolution.channels, convolution.heads) == ("conv", 4096, 0)
    lightning = described(head_dim=128, layer_group_size=4).recurrent
    assert lightning is not None
    assert (lightning.kind, lightning.heads, lightning.rows) == ("lightning", 32, 128)


def test_gemma_4_and_mimo_have_other_heads_in_layers_with_a_window() -> None:
    gemma = described(global_head_dim=512, head_dim=256, num_global_key_value_heads=2)
    assert tuple(gemma.kv("full").model_dump().values()) == (2, 512, 512)
    assert tuple(gemma.kv("sliding").model_dump().values()) == (8, 256, 256)
    mimo = described(
        head_dim=192,
        hybrid_layer_pattern=[0, 1, 1, 1] * 2,
        num_key_value_heads=4,
        sliding_window_size=128,
        swa_head_dim=192,
        swa_num_key_value_heads=8,
        swa_v_head_dim=128,
        v_head_dim=128,
    )
    assert tuple(mimo.kv("full").model_dump().values()) == (4, 192, 128)
    assert tuple(mimo.kv("sliding").model_dump().values()) == (8, 192, 128)
    assert (mimo.layer_types.count("sliding"), mimo.sliding_window) == (6, 128)
    assert tuple(described().kv("full").model_dump().values()) == (8, 128, 128)


@pytest.mark.parametrize(
    ("changes", "index"),
    [
        ({"index_head_dim": 128, "index_n_heads": 64}, (64, 128, tuple(range(8)))),  # DeepSeek-V3.2
        (
            {"index_head_dim": 128, "index_n_heads": 32, "indexer_types": ["full", "shared"] * 4},  # GLM-5.2
            (32, 128, (0, 2, 4, 6)),
        ),
        (
            {
                "sparse_attention_config": {  # MiniMax-M3
                    "sparse_attention_freq": [0, 0, 0, 1, 1, 1, 1, 1],
                    "sparse_index_dim": 128,
                    "sparse_num_index_heads": 4,
                }
            },
            (4, 128, (3, 4, 5, 6, 7)),
        ),
        ({}, None),
    ],
)
def test_the_index_of_sparse_attention(
    changes: dict[str, Any], index: tuple[int, int, tuple[int, ...]] | None
) -> None:
    described_index = described(**changes).index
    assert (tuple(described_index.model_dump().values()) if described_index else None) == index


def test_deepseek_v4() -> None:
    ratios = [128, 128, 4, 128, 4, 128, 4, 0]
    assert described(compress_ratios=[*ratios, 0]).compress_ratios == tuple(ratios)
    assert described(compress_ratios=ratios[:3]).compress_ratios == ()
    assert described(compress_ratios=["4"] * 8).compress_ratios == ()


def test_the_longest_context_of_kimi_linear_has_another_name() -> None:
    assert described(max_position_embeddings=None, model_max_length=1048576).max_context == 1048576


@pytest.mark.parametrize(
    ("changes", "dense"),
    [
        ({"moe_layer_freq": [0, 0, 0, 1, 1, 1, 1, 1]}, (0, 1, 2)),
        ({"mlp_layer_types": ["dense"] + ["sparse"] * 7}, (0,)),
    ],
)
def test_layers_without_experts_are_listed(changes: dict[str, Any], dense: tuple[int, ...]) -> None:
    moe = described(num_local_experts=128, moe_intermediate_size=512, **changes).moe
    assert moe is not None
    assert moe.dense_layers == dense
