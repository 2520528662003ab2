"""What unit tests compare our memory with is what the engines' own code computes today."""

from __future__ import annotations

import json
from pathlib import Path

import engine_sites
import pytest

DATA = engine_sites.ROOT / "tests" / "unit" / "data"
# (engine, version, the tool, the record that it writes)
RECORDS = (
    ("sglang", "0.5.23", "sglang_memory.py", "sglang-0.5.23-kv.json"),
    ("sglang", "0.5.23", "sglang_weights.py", "sglang-0.5.23-weights.json"),
    ("sglang", "0.5.23", "sglang_lora.py", "sglang-0.5.23-lora.json"),
    ("vllm", "0.33.0", "vllm_memory.py", "vllm-0.33.0-memory.json"),
    ("vllm", "0.33.0", "vllm_kv.py", "vllm-0.33.0-kv.json"),
    ("vllm", "0.33.0", "vllm_lora.py", "vllm-0.33.0-lora.json"),
    ("lmdeploy", "0.18.0", "lmdeploy_memory.py", "lmdeploy-0.18.0-kv.json"),
)


@pytest.mark.parametrize(("engine", "version", "tool", "record"), RECORDS)
def test_the_engine_computes_the_record(
    engine: str, version: str, tool: str, record: str, tmp_path: Path
) -> None:
    engine_sites.run_program(engine, version, engine_sites.ROOT / "tools" / tool, str(tmp_path))
    written = json.loads((tmp_path / record).read_text(encoding="utf-8"))
    committed = json.loads((DATA / record).read_text(encoding="utf-8"))
    if isinstance(committed, dict):  # a short failure: one model's rows
        for name, rows in committed["models"].items():
            assert written["models"].get(name) == rows, name
    assert written == committed
