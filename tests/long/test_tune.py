"""`deploy tune` and `deploy bench --engines` on the lab's engines: restarts, verdicts, and the way back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from readme_lab import INVENTORY, bring_up, on_node, own_lab, succeeds

pytestmark = pytest.mark.lab
LOAD = ("--concurrency", "2", "--requests", "4", "--warmup", "1")


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """As lab.ini on a subnet of its own; its lab is removed in the end."""
    text = INVENTORY.read_text().replace("10.213.0.", "10.218.0.")
    with own_lab(tmp_path_factory.mktemp("inventory") / "lab-tune.ini", text) as path:
        bring_up(inventory=path)
        yield path


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    file = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    file.write_text("".join(f'{{"prompt": "Number {n}", "max_tokens": 8}}\n' for n in range(8)))
    return ["--dataset", str(file)]


def command(inventory: Path) -> str:
    return on_node("node1", "docker inspect --format '{{json .Args}}' headfirst-engine", inventory)


def test_a_candidate_is_tried_and_the_service_runs_as_before(inventory: Path, prompts: list[str]) -> None:
    before = command(inventory)
    options = [*LOAD, *prompts, "--repeats", "2", "--most", "2", "--yes", "--json"]
    found = json.loads(succeeds("tune", inventory=inventory, options=options))
    # Attention in parallel over data does not start on CPUs; the next candidate is tried all the same.
    failed, trial = found["trials"]
    assert failed["judged"]["verdict"] == "failed", failed
    assert trial["judged"]["verdict"] in ("better", "worse", "no difference"), trial
    assert len(trial["points"]) == 2
    assert len(found["baseline"]) == 4
    assert command(inventory) == before


def test_engines_are_compared_and_the_own_one_runs_again(
    inventory: Path, prompts: list[str], tmp_path: Path
) -> None:
    before = command(inventory)
    options = [*LOAD, *prompts, "--engines", "sglang,vllm=0.32.0", "--yes", "--json", "-o", str(tmp_path)]
    runs = json.loads(succeeds("bench", inventory=inventory, options=options))["runs"]
    assert [run["subject"]["engine"] for run in runs] == ["sglang", "vllm"]
    assert all(point["errors"] == {} for run in runs for point in run["points"])
    assert (tmp_path / "throughput.svg").is_file()
    assert command(inventory) == before
