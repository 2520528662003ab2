"""Weights on a rank, as the record of SGLang's own model classes has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from headfirst.decide import engines
from headfirst.decide.engines.layout import Layout, Machines
from headfirst.decide.hardware import gpus
from headfirst.decide.model import catalogue
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.plan.sizing.fit import weight_bytes_per_rank
from together import together

ENGINE = engines.get("sglang")
RECORD: dict[str, Any] = json.loads(
    (Path(__file__).parent / "data" / "sglang-0.5.23-weights.json").read_text(encoding="utf-8")
)
MODELS = [name for name in RECORD["models"] if catalogue.lookup(name.replace("--", "/", 1)) is not None]
# Not counted: the shared experts that an all-to-all back end copies, what Gemma-4's quantisation leaves on
# each rank, and DeepSeek-V4's scales, which are float32 until the loading ends.
UNCOUNTED = "nvidia--Gemma-4"


def model(name: str) -> Checkpoint:
    checkpoint = catalogue.lookup(name.replace("--", "/", 1))
    assert checkpoint is not None
    return checkpoint


def sizes(row: dict[str, Any]) -> tuple[Layout, dict[str, Any], Machines]:
    given = {key: value for key, value in row["arguments"].items() if key not in ("nnodes", "dist_init_addr")}
    tensor = given.pop("tp_size")
    return ENGINE.layout(tensor, 1, given), given, Machines(2 if tensor > 8 else 1, 8)


def is_counted(name: str, row: dict[str, Any]) -> bool:
    late = name.startswith("deepseek-ai--DeepSeek-V4") and row["gpu"] == "B200"
    return "moe_a2a_backend" not in row["arguments"] and not late and not name.startswith(UNCOUNTED)


@together("name", MODELS)
def test_weights_are_within_an_eighth(name: str) -> None:
    checkpoint = model(name)
    for row in RECORD["models"][name]:
        its, given, machines = sizes(row)
        problems = ENGINE.layout_problems(checkpoint, machines, its, dtype=checkpoint.dtype, values=given)
        if "total" not in row or problems or not is_counted(name, row):
            continue
        gpu = gpus.find(row["gpu"])
        use = ENGINE.memory_use(checkpoint, gpu, its, given)
        ours = weight_bytes_per_rank(checkpoint, its, dtype=checkpoint.dtype, use=use)
        assert ours == pytest.approx(row["total"], rel=1 / 8), (row["gpu"], row["arguments"])
