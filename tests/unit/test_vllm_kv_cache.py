"""KV cache, states and limits of real models, within a tenth of what vLLM's own functions computed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from headfirst.decide.engines.vllm import kv_cache, layout
from headfirst.decide.hardware.gpus import find
from model_configs import checkpoint
from together import together

VERSION = "0.33.0"
RECORD: dict[str, Any] = json.loads(
    (Path(__file__).parent / "data" / f"vllm-{VERSION}-kv.json").read_text(encoding="utf-8")
)


@together("name", RECORD["models"])
def test_the_cache_is_what_vllm_computes(name: str) -> None:
    model = checkpoint(name)
    for row in RECORD["models"][name]:
        values = row["arguments"]
        blocks = kv_cache.blocks(
            model,
            find(row["gpu"]),
            layout.layout(row["tensor"], 1, values),
            values,
            in_flight=row["in_flight"],
            # Some configs state no layers that draft: the headers of the weights have them.
            drafts=max(1, model.nextn_layers) if "speculative_config" in values else 0,
        )
        size, longest = RECORD["available"], row["longest_that_starts"]
        ours = {
            "tokens": blocks.room(size, longest, None).tokens,
            "longest_that_starts": blocks.room(size, row["max_model_len"], None).longest,
        }
        where = (row["gpu"], row["tensor"], values)
        assert ours == pytest.approx({key: row[key] for key in ours}, rel=0.1), where
        requests = blocks.room(size, longest, None).requests or 0
        assert requests == pytest.approx(row["max_num_seqs"] or 0, rel=0.1), where
