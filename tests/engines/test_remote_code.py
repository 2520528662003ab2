"""Checkpoints need the Python code that they bring (`code` in families.json) where engines lack their own."""

from __future__ import annotations

import json
from pathlib import Path

import engine_sites
import planned_commands
import pytest
from headfirst.decide.model import catalogue, families

# Of these no engine has the tokenizer.
TOKENIZERS = ("kimi-",)


@pytest.mark.parametrize("engine", engine_sites.ENGINES)
def test_code_is_needed_where_the_engine_does_not_read_the_configuration(engine: str, tmp_path: Path) -> None:
    folders = {}
    for id in catalogue.ids():
        if named := catalogue.resolved(id)["config"].get("auto_map"):
            folder = tmp_path / id.replace("/", "--")
            folder.mkdir()
            config = planned_commands.config(id) | {"auto_map": named}
            (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
            folders[id] = str(folder)
    question = {"engine": engine, "folders": folders}
    errors = engine_sites.run(engine, "remote_code_driver.py", question)
    differ = []
    for id in folders:
        checkpoint = catalogue.lookup(id)
        assert checkpoint is not None
        family = families.find(checkpoint)
        code = family.code if family else None
        tokenizer = family is not None and family.name.startswith(TOKENIZERS)
        needed = id in errors or tokenizer
        # LMDeploy also reads configurations of models that it has no class for.
        if needed != (code == "needed") and (needed or engine != "lmdeploy"):
            differ.append(f"{id}: code is {code}; {errors.get(id, 'the engine reads config.json')}")
    assert not differ, "\n".join(differ)
