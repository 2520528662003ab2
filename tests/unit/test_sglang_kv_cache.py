"""KV cache, states and fractions of real models, within a tenth of what SGLang's own functions computed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from headfirst.decide import engines
from headfirst.decide.engines.sglang import kv_cache
from headfirst.decide.hardware.gpus import MIB, Gpu, find
from model_configs import checkpoint
from together import together

VERSION = "0.5.23"
ENGINE = engines.get("sglang")
RECORD: dict[str, Any] = json.loads(
    (Path(__file__).parent / "data" / f"sglang-{VERSION}-kv.json").read_text(encoding="utf-8")
)
REST = RECORD["rest_gib"] << 30


def settings(row: dict[str, Any]) -> tuple[Gpu, dict[str, Any], Any]:
    given = {
        name: value for name, value in row["arguments"].items() if name not in ("nnodes", "dist_init_addr")
    }
    tensor, pipeline = given.pop("tp_size"), given.pop("pp_size", 1)
    gpu = replace(find(row["gpu"]), memory_bytes=RECORD["gpu_mib"][row["gpu"]] * MIB)
    return gpu, given, ENGINE.layout(tensor, pipeline, given)


@together("name", RECORD["models"])
def test_the_cache_is_what_sglang_computes(name: str) -> None:
    model = checkpoint(name)
    for row in RECORD["models"][name]:
        gpu, given, sizes = settings(row)
        if "window_tokens" in row and given.get("disable_radix_cache"):
            continue  # a pool of windows for --max-running-requests alone, which the plan does not count
        drafts = model.nextn_layers if "speculative_algorithm" in given else 0
        cache = kv_cache.kv_cache(ENGINE.answers.support, model, gpu, sizes, given, drafts=drafts)
        room = cache.room(REST - cache.fixed, None)
        where = (row["arguments"], row["gpu"])
        if sizes.pipeline > 1:  # the record has one stage, the plan counts the fullest
            assert row["tokens"] * 0.85 < room.tokens <= row["tokens"] * 1.1, where
            continue
        ours = {"bytes_per_token": cache.bytes_per_token, "tokens": room.tokens}
        if "state_bytes" in row:
            ours |= {"state_bytes": cache.state, "requests": room.requests or 0}
        assert ours == pytest.approx({key: row[key] for key in ours}, rel=0.1), where


@together("name", RECORD["models"])
def test_the_fraction_is_what_sglang_computes(name: str) -> None:
    model = checkpoint(name)
    for row in RECORD["models"][name]:
        gpu, given, sizes = settings(row)
        use = ENGINE.memory_use(model, gpu, sizes, given)
        beside = sum(use.terms.get(term, 0) for term in ("image_cache", "compression_states"))
        fraction = use.static_fraction + beside / gpu.memory_bytes
        assert fraction == pytest.approx(row["mem_fraction_static"], rel=0.1), (row["arguments"], row["gpu"])
