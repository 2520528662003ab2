"""Buffers of LoRA adapters, as the engines' own classes allocate them.

The records have the layouts and modules that the engines accept.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from headfirst.decide import engines
from headfirst.decide.engines.sglang import lora as sglang_lora
from headfirst.decide.engines.vllm import layout as vllm_layout
from headfirst.decide.engines.vllm import lora as vllm_lora
from headfirst.decide.model.adapter import AdapterConfig
from model_configs import checkpoint
from together import together

_DATA = Path(__file__).parent / "data"
VLLM: dict[str, Any] = json.loads((_DATA / "vllm-0.33.0-lora.json").read_text(encoding="utf-8"))
SGLANG: dict[str, Any] = json.loads((_DATA / "sglang-0.5.23-lora.json").read_text(encoding="utf-8"))


@together("name", VLLM["models"])
def test_vllm_allocates_them(name: str) -> None:
    model = checkpoint(name)
    for row in VLLM["models"][name]:
        values = {"enable_lora": True, "max_lora_rank": VLLM["rank"], **row["arguments"]}
        layout = vllm_layout.layout(row["tensor"], 1, values)
        size = vllm_lora.buffer_bytes(engines.get("vllm").answers.support, model, layout, values)
        assert size == pytest.approx(row["bytes"], rel=0.1), (row, size / row["bytes"])


@together("name", SGLANG["models"])
def test_sglang_allocates_them(name: str) -> None:
    for row in SGLANG["models"][name]:
        config = AdapterConfig(SGLANG["rank"], SGLANG["rank"], tuple(row["targets"]))
        model = checkpoint(name).model_copy(update={"adapters": (config,)})
        values = row["arguments"]
        layout = engines.get("sglang").layout(values["tp_size"], 1, values)
        size = sglang_lora.buffer_bytes(model, layout, values)
        assert size == pytest.approx(row["bytes"], rel=0.1), (row, size / row["bytes"])
