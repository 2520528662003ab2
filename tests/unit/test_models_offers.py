"""Every offer of `deploy models` is planned as it is printed, on GPUs of each kind, with each engine."""

from __future__ import annotations

from pathlib import Path

import offers
import pytest
from headfirst.control.checkpoints.describe import OFFLINE
from headfirst.control.deployment.verbs.models import fleet
from headfirst.control.inventory.inventory import load
from headfirst.decide.model import catalogue
from headfirst.decide.plan.trial import ServiceTrial


@pytest.mark.parametrize(("fleet", "first"), [("2x4090", 0), ("8xH100", 1), ("1xA10", 2)])
def test_the_first_offers_are_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fleet: str, first: int
) -> None:
    """Of every fifth model; tests/long/test_offers.py plans all, on more GPUs and with each engine."""
    some = catalogue.ids()[first::5]
    monkeypatch.setattr(catalogue, "ids", lambda: some)
    monkeypatch.setenv(OFFLINE, "1")
    offers.check(tmp_path / "cluster.ini", offers.FLEETS[fleet], "vllm", most=6)


@pytest.mark.parametrize(
    ("fleet", "variables"),
    [
        # Rules that every plan of Llama 4 has.
        (("H100-80G", 1, 2), {"model": "nvidia/Llama-4-Scout-17B-16E-Instruct-NVFP4", "engine": "vllm"}),
        # Copies of one GPU each, and data parallelism, where three ranks divide no head.
        (("A100-80G", 1, 3), {"model": "meta-llama/Llama-3.1-70B-Instruct", "engine": "vllm"}),
        # Replicas that the inventory sets.
        (("RTX-4090", 2, 4), {"model": "Qwen/Qwen3-32B", "engine": "sglang", "replicas": "4"}),
    ],
    ids=["rules", "groups", "replicas"],
)
def test_advice_has_the_figures_of_the_plan_that_it_leads_to(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fleet: tuple[str, int, int],
    variables: dict[str, str],
) -> None:
    monkeypatch.setenv(OFFLINE, "1")
    assert offers.check_advice(tmp_path / "cluster.ini", fleet, variables)


def test_models_are_for_the_gpus_that_the_inventory_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With GPUs 0 and 1 of 8, every model was refused."""
    monkeypatch.setenv(OFFLINE, "1")
    path = tmp_path / "cluster.ini"
    path.write_text("[head]\nn1 ansible_host=192.0.2.1\n[all:vars]\ngpus=8\ngpu=A100-80G\ngpu_devices=0,1\n")
    cluster = load([path], [], needs_model=False)
    assert fleet(cluster).gpus_per_node == 2
    settings = ServiceTrial.on_all_hosts(cluster).settings
    assert settings.gpu_devices == ["0", "1"]
