"""The snapshots that plans are checked against are what the engines' probes answer."""

from __future__ import annotations

import json

import engine_sites
import engine_snapshot
import pytest
from headfirst.decide.engines import presets
from headfirst.decide.package_data import read_json

PARSERS = ("--tool-call-parser", "--reasoning-parser")


@pytest.mark.parametrize("engine", engine_sites.ENGINES)
def test_the_snapshot_is_what_the_probe_answers(engine: str) -> None:
    told = engine_snapshot.document(engine)
    committed = read_json(f"headfirst.decide.engines.{engine}", "snapshot.json")
    for part in ("version", "options", "support"):  # a short failure first
        assert told[part] == committed[part], part
    assert json.loads(engine_snapshot.text(told)) == told == committed


@pytest.mark.parametrize("engine", engine_sites.ENGINES)
def test_each_parser_of_the_presets_is_one_of_the_engine(engine: str) -> None:
    names = {
        flag: sorted({rule.arguments[flag] for rule in presets.of(engine).rules if flag in rule.arguments})
        for flag in PARSERS
    }
    assert all(names.values())
    assert engine_sites.run(engine, "parsers_driver.py", {"engine": engine, "names": names}) == []
