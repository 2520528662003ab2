"""Every plan that exits with 0 is one that the engine's own code accepts, of the snapshot's version.

What the engine's code checks before it uses a GPU is in docs/engines.md.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import engine_sites
import planned_commands
import pytest
from planned_commands import FLEETS, Case, Fleet

# Of SGLang's memory fraction; the plan takes off what SGLang allocates of it beside weights and KV cache.
LESS, MORE = 0.92, 1.01


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the cluster and the models."""
    return tmp_path_factory.mktemp("engines")


@cache
def answered(folder: Path, engine: str, fleet: Fleet) -> list[tuple[Case, dict[str, Any]]]:
    """Each command and what the engine made of it (planned_gpu.answers)."""
    cases = list(planned_commands.cases(planned_commands.one_host(folder), engine, fleet))
    # Models, not commands: where a preset adds nothing to an engine, its command is that of the plan without.
    assert len({case.model for case in cases}) >= 80, "the plans themselves are refused"
    question = planned_commands.question(fleet, engine, cases, folder)
    answers = engine_sites.run(engine, f"{engine}_driver.py", question)
    return list(zip(cases, answers, strict=True))


def on_each_fleet(*names: str) -> pytest.MarkDecorator:
    """These engines on all fleets."""
    return pytest.mark.parametrize(
        ("fleet", "engine"),
        [pytest.param(fleet, engine, id=f"{engine}-{fleet}") for engine in names for fleet in FLEETS],
    )


@on_each_fleet("sglang", "vllm", "lmdeploy")
def test_the_engine_accepts_every_command(folder: Path, fleet: Fleet, engine: str) -> None:
    answers = answered(folder, engine, fleet)
    refused = planned_commands.refused(planned_commands.not_enough(engine), answers)
    assert not refused, f"{engine} refuses {len(refused)} of {len(answers)}:\n" + "\n".join(refused)


@pytest.mark.parametrize("engine", engine_sites.ENGINES)
def test_each_exception_is_an_error(folder: Path, engine: str) -> None:
    answers = [answer for fleet in FLEETS for answer in answered(folder, engine, fleet)]
    exceptions = planned_commands.not_enough(engine)
    assert not planned_commands.stale(exceptions, answers), "remove these from NOT_ENOUGH"


@on_each_fleet("sglang")
def test_the_plan_counts_no_more_memory_for_weights_and_cache_than_sglang_takes(
    folder: Path, fleet: Fleet, engine: str
) -> None:
    differ = [
        f"{case.inventory}\n  {' '.join(case.command)}\n  planned {planned}, {engine} {actual}"
        for case, answer in answered(folder, engine, fleet)
        if "values" in answer
        and (actual := answer["values"]["mem_fraction_static"])
        and (planned := case.service.fit.static_fraction)
        and not LESS * actual <= planned <= MORE * actual
    ]
    assert not differ, f"{len(differ)} differ:\n" + "\n".join(differ)
