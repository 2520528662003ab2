"""KV caches of models whose layers differ, within a tenth of what the engines' own code computed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from headfirst.common.errors import InputError
from headfirst.decide import engines
from headfirst.decide.engines.sglang import kv_cache as sglang_cache
from headfirst.decide.engines.vllm import kv_cache as vllm_cache
from headfirst.decide.engines.vllm import layout as vllm_layout
from headfirst.decide.hardware.gpus import MIB, find
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.model.config import WeightFiles, from_config

RECORD: dict[str, Any] = json.loads(
    (Path(__file__).parent / "data" / "hybrid-caches.json").read_text(encoding="utf-8")
)
OTHER = {**RECORD["models"]["tiiuae/Falcon-H1-7B-Instruct"]["config"], "model_type": "other"}
SGLANG = engines.get("sglang")
H200 = replace(find("H200-141G"), memory_bytes=143_771 * MIB)


def described(config: dict[str, Any]) -> Checkpoint:
    return from_config(
        config,
        id="org/model",
        revision=None,
        weights=WeightFiles(10**11, ()),
        source="folder",
        where="config.json",
    )


@pytest.mark.parametrize("name", RECORD["models"])
def test_vllm_divides_it_so(name: str) -> None:
    model = RECORD["models"][name]
    for row in model["vllm"]:
        blocks = vllm_cache.blocks(
            described(model["config"]),
            find("H100-80G"),
            vllm_layout.layout(row["tensor"], 1, {}),
            {},
            in_flight=row["in_flight"],
            drafts=0,
        )
        room = blocks.room(RECORD["bytes"], row["longest_that_starts"], None)
        longest = blocks.room(RECORD["bytes"], row["max_model_len"], None).longest
        recorded = (row["tokens"], row["max_num_seqs"] or 0, row["longest_that_starts"])
        assert (room.tokens, room.requests or 0, longest) == pytest.approx(recorded, rel=0.1)


@pytest.mark.parametrize("name", RECORD["models"])
def test_sglang_divides_it_so(name: str) -> None:
    model = RECORD["models"][name]
    for row in model["sglang"]:
        cache = sglang_cache.kv_cache(
            SGLANG.answers.support,
            described(model["config"]),
            H200,
            SGLANG.layout(row["tensor"], 1, {}),
            {},
            drafts=0,
        )
        room = cache.room(RECORD["bytes"], None)
        recorded = (row["bytes_per_token"], row["tokens"])
        assert (cache.bytes_per_token, room.tokens) == pytest.approx(recorded, rel=0.1)
        if row["state_bytes"]:
            states = (row["state_bytes"], row["requests"])
            assert (cache.state, room.requests) == pytest.approx(states, rel=0.1)


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        ({"layers_block_type": ["mamba", "hybrid"] * 14}, {"full": 14, "linear": 28}),
        ({"attn_layer_period": 7, "attn_layer_offset": 3}, {"full": 4, "linear": 24}),
        ({"block_configs": [{"block_type": kind} for kind in ("mamba", "attention", "moe", "mlp")] * 7},
         {"linear": 7, "full": 7, "none": 14}),
        ({"block_configs": [{"attention": {"replace_with_linear": True}}, {"attention": {}}, None, {}]},
         {"none": 1, "full": 27}),
    ],
)  # fmt: skip
def test_kinds_of_layers(change: dict[str, Any], kinds: dict[str, int]) -> None:
    model = described({**OTHER, "num_hidden_layers": 28, **change})
    assert model.kinds(range(28)) == kinds
    assert model.note is None or "linear" not in kinds


def test_states_in_unknown_layers_are_noted() -> None:
    """Without a note each layer would count as attention in silence."""
    model = described(OTHER)
    assert model.kinds(range(44)) == {"full": 44}
    assert "does not state in a known way which layers keep a state" in model.described_by


def test_lists_with_a_value_for_each_layer() -> None:
    config = RECORD["models"]["google/gemma-3n-E4B-it"]["config"]["text_config"]
    model = described({**config, "architectures": ["X"], "intermediate_size": [8192, 16384] * 17 + [0]})
    assert model.intermediate_size == 16384


def test_a_model_without_any_cache_is_refused() -> None:
    config = RECORD["models"]["nvidia/Llama-3_3-Nemotron-Super-49B-v1"]["config"]
    with pytest.raises(InputError, match="no layer with attention"):
        described({**config, "block_configs": [{"attention": {"no_op": True}}] * 80})
