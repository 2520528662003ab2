"""KV caches of models whose layers differ: the record of the unit tests is what the engines compute."""

from __future__ import annotations

import json

import engine_sites
import pytest

RECORD = engine_sites.ROOT / "tests" / "unit" / "data" / "hybrid-caches.json"


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_the_engine_computes_the_record(engine: str) -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    version, models = record["versions"][engine], record["models"]
    asked = {name: model["config"] for name, model in models.items() if model[engine]}
    made = engine_sites.run(engine, version, f"{engine}_caches_driver.py", asked)
    for name, rows in made.items():
        committed = models[name][engine]
        assert [{key: row.get(key) for key in committed[0]} for row in rows] == committed, name
