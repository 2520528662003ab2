"""The plans of the experts' tables (tests/unit/test_expert_*.py) are ones that the newest engine accepts."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

import engine_sites
import planned_commands
import pytest
import test_expert_layouts
import test_expert_plans
from headfirst.common.errors import InputError
from planned_commands import Case, Fleet

TABLE = {name: case for name, (case, _) in (test_expert_plans.CASES | test_expert_layouts.CASES).items()}


@pytest.mark.parametrize("engine", ["sglang", "vllm"])  # the tables have no plan for LMDeploy
def test_the_engine_accepts_the_commands_of_the_table(engine: str, tmp_path: Path) -> None:
    groups: dict[Fleet, list[Case]] = defaultdict(list)
    for name, case in TABLE.items():
        try:
            service = test_expert_plans.plan(case, tmp_path).services[0]
        except InputError:
            continue  # refused, as the table requires
        if service.engine != engine or service.device != "cuda" or service.fit.fits is False:
            continue
        words = "\n".join((*case.hosts, *case.set))
        (gpu, *_), (gpus, *_) = re.findall(r"\bgpu=(\S+)", words), re.findall(r"\bgpus=(\d+)", words)
        fleet = Fleet(len(case.hosts), int(gpus), gpu)
        groups[fleet] += planned_commands.of_ranks(name, case.model, service)
    assert sum(map(len, groups.values())) >= 5
    questions = [planned_commands.question(fleet, engine, cases, tmp_path) for fleet, cases in groups.items()]
    engine_sites.environment(engine)  # installed once
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        answers = threads.map(lambda asked: engine_sites.run(engine, f"{engine}_driver.py", asked), questions)
        pairs = list(zip(chain(*groups.values()), chain(*answers), strict=True))
    refused = planned_commands.refused(planned_commands.not_enough(engine), pairs)
    assert not refused, "\n".join(refused)
