"""SGLang's pool of LoRA adapters has sizes for the modules that a plan accepts."""

from __future__ import annotations

import json
from typing import Any

import engine_sites
import model_configs
import planned_commands
from headfirst.decide.engines.sglang import lora, support
from headfirst.decide.model import catalogue

VERSION = "0.5.23"  # that of tools/sglang_lora.py


def models() -> dict[str, dict[str, Any]]:
    """Publishers' files, and the catalogue's first entry of each further architecture."""
    files = sorted(model_configs.FOLDER.glob("*.json"))
    records = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}
    known = {record["config"]["architectures"][0] for record in records.values()}
    known |= support.table(VERSION).pooling_only
    for id in catalogue.ids():
        config = planned_commands.config(id)
        (architecture,) = config["architectures"]
        if architecture not in known:
            records[id] = {"config": config}
            known.add(architecture)
    return records


def test_a_plan_accepts_the_modules_that_sglang_has_sizes_for() -> None:
    records = models()
    answers = engine_sites.run("sglang", VERSION, "sglang_adapters_driver.py", records)
    compared, differ = set(), []
    for name, answer in answers.items():
        if "error" in answer:  # the catalogue's entry does not have each key
            assert name in catalogue.ids(), answer["error"]
            continue
        checkpoint = catalogue.lookup(name) or model_configs.checkpoint(name)
        compared.add(checkpoint.architecture)
        modules, sized = frozenset(answer["modules"]), frozenset(answer["sized"])
        if lora.sized_modules(checkpoint) & modules != sized:
            differ.append(f"{name}: SGLang has sizes for {sorted(sized)} of {sorted(modules)}")
        if lora.are_all_sized(checkpoint) != (modules == sized):
            differ.append(f"{name}: SGLang has no sizes for {sorted(modules - sized)}")
    assert not differ, "\n".join(differ)
    assert len(compared) > 40, compared  # of 60
