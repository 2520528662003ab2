"""The tables that plans are checked against are those of the engines' own registries and parsers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import engine_sites
import pytest
from headfirst.decide import engines
from headfirst.decide.engines import presets

TOOLS = engine_sites.ROOT / "tools"
# The tool of each engine; the second, and the name of what it writes.
OPTIONS = {
    "sglang": "sglang_arguments.py",
    "vllm": "vllm_arguments.py",
    "lmdeploy": "lmdeploy_tables.py",
}
SUPPORT = {
    "sglang": ("sglang_support.py", "support"),
    "vllm": ("vllm_tables.py", "support"),
    "lmdeploy": ("lmdeploy_tables.py", "models"),
}
PARSERS = ("--tool-call-parser", "--reasoning-parser")


def committed(engine: str, name: str) -> Any:
    return json.loads(Path(engines.__path__[0], engine, name).read_text(encoding="utf-8"))


@pytest.mark.parametrize(("engine", "version"), engine_sites.VERSIONS)
def test_the_options_are_those_of_the_engine(engine: str, version: str, tmp_path: Path) -> None:
    engine_sites.run_program(engine, version, TOOLS / OPTIONS[engine], str(tmp_path))
    name = f"arguments-{version}.json"
    written = json.loads((tmp_path / name).read_text(encoding="utf-8"))
    assert written == committed(engine, name)


@pytest.mark.parametrize(("engine", "version"), engine_sites.VERSIONS)
def test_what_the_engine_supports_is_in_its_registries(engine: str, version: str, tmp_path: Path) -> None:
    tool, table = SUPPORT[engine]
    # SGLang's is read from its source.
    source = [str(engine_sites.engine_site(engine, version) / engine)] if engine == "sglang" else []
    engine_sites.run_program(engine, version, TOOLS / tool, *source, str(tmp_path))
    name = f"{table}-{version}.json"
    written = json.loads((tmp_path / name).read_text(encoding="utf-8"))
    assert written == committed(engine, name)


@pytest.mark.parametrize(("engine", "version"), engine_sites.VERSIONS)
def test_each_parser_of_the_presets_is_one_of_the_engine(engine: str, version: str) -> None:
    names = {
        flag: sorted({rule.arguments[flag] for rule in presets.of(engine).rules if flag in rule.arguments})
        for flag in PARSERS
    }
    assert all(names.values())
    assert engine_sites.run(engine, version, "parsers_driver.py", {"engine": engine, "names": names}) == []
