"""Weights on a rank, as SGLang's own model classes have them.

Not in the record: shared experts that an all-to-all back end copies, what Gemma-4's quantisation leaves on
each rank, and DeepSeek-V4's scales, which are float32 until the loading ends.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from headfirst.decide import engines
from headfirst.decide.hardware import gpus
from headfirst.decide.plan.sizing.fit import weight_bytes_per_rank
from known_models import model
from together import together

ENGINE = engines.get("sglang")
RECORD: dict[str, Any] = json.loads(
    (Path(__file__).parent / "data" / "sglang-0.5.23-weights.json").read_text(encoding="utf-8")
)


@together("name", RECORD["models"])
def test_weights_are_within_an_eighth(name: str) -> None:
    checkpoint = model(name.replace("--", "/", 1))
    for row in RECORD["models"][name]:
        given = {
            key: value for key, value in row["arguments"].items() if key not in ("nnodes", "dist_init_addr")
        }
        layout = ENGINE.layout(given.pop("tp_size"), 1, given)
        use = ENGINE.memory_use(checkpoint, gpus.find(row["gpu"]), layout, given)
        ours = weight_bytes_per_rank(checkpoint, layout, dtype=checkpoint.dtype, use=use)
        assert ours == pytest.approx(row["total"], rel=1 / 8), (row["gpu"], row["arguments"])
