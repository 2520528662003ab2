"""Every plan that exits with 0 is one that the engine's own code accepts, of each supported version.

What the engine's code checks before it uses a GPU is in docs/engines.md.
"""

from __future__ import annotations

from pathlib import Path

import engine_sites
import planned_commands
import pytest
from planned_commands import FLEETS, Fleet

# Words before those that the engine's own parser reads.
BEFORE = {"sglang": ["python3", "-m", "sglang.launch_server"], "vllm": ["serve"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the cluster and the models."""
    return tmp_path_factory.mktemp("engines")


@pytest.mark.parametrize(("engine", "version"), engine_sites.VERSIONS)
@pytest.mark.parametrize("fleet", FLEETS, ids=lambda fleet: f"{fleet.hosts}x{fleet.gpus}x{fleet.gpu}")
def test_the_engine_accepts_every_command(folder: Path, engine: str, version: str, fleet: Fleet) -> None:
    cases = list(planned_commands.cases(planned_commands.one_host(folder), engine, version, fleet))
    commands = [planned_commands.on_this_machine(case, folder) for case in cases]
    before = BEFORE[engine]
    assert all(command[: len(before)] == before for command in commands)
    question = {
        "gpu": planned_commands.gpu(fleet),
        "commands": [command[len(before) :] for command in commands],
    }
    answers = engine_sites.run(engine, version, f"{engine}_driver.py", question)
    refused = [
        f"{case.inventory}\n  {' '.join(case.command)}\n  {answer['error']}\n  {answer['at']}"
        for case, answer in zip(cases, answers, strict=True)
        if "error" in answer
    ]
    assert len(cases) >= 100, "the plans themselves are refused"
    assert not refused, f"{engine} {version} refuses {len(refused)} of {len(cases)}:\n" + "\n".join(refused)
