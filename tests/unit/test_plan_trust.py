"""Python code of a model runs only where the inventory or the catalogue allows it, and the plan says why."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import clusters
import pytest
from command import plan_of
from headfirst.common.errors import InputError
from headfirst.control.cli.shown.plan import print_plan
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.model import catalogue
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.plan import trust
from headfirst.decide.plan.types import Plan
from known_models import model

R1 = "deepseek-ai/DeepSeek-R1"
INVENTORY = f"""
[head]
node1 ansible_host=192.0.2.1 gpus=8 gpu=H200-141G
[all:vars]
model={R1}
model_source=huggingface
"""
ROOT = Path(__file__).resolve().parents[2]


def planned(cluster: Cluster, checkpoint: Checkpoint | None = None, **settings: Any) -> Plan:
    return clusters.planned(clusters.with_settings(cluster, **settings), checkpoint or model(R1))


def has_flag(plan: Plan) -> bool:
    flags = {"--trust-remote-code" in node.container.command for node in clusters.nodes(plan)}
    assert len(flags) == 1
    assert flags == {plan.services[0].trust_remote_code}
    return plan.services[0].trust_remote_code


def test_the_catalogue_names_whole_commits() -> None:
    listed = [commit for id in catalogue.ids() if (commit := catalogue.trusted_commit(id, "huggingface"))]
    assert len(listed) == 2
    assert all(re.fullmatch(r"[0-9a-f]{40}", commit) for commit in listed)
    for id in catalogue.ids():
        assert model(id).remote_code or catalogue.trusted_commit(id, "huggingface") is None
        assert catalogue.trusted_commit(id, "modelscope") is None


def test_a_listed_commit_is_trusted_and_fetched(cluster: Cluster) -> None:
    plan = planned(cluster)
    assert has_flag(plan)
    assert plan.services[0].weights.revision == catalogue.trusted_commit(R1, "huggingface")
    assert str(plan.services[0].weights.revision) in plan.services[0].trust_reason


@pytest.mark.parametrize(
    ("settings", "flag", "words"),
    [
        ({"model_revision": "main"}, False, "model_revision is main"),
        ({"model_source": "modelscope"}, False, "no commit of it on this source (modelscope)"),
        ({"model": "someone/else"}, False, "no commit of it"),
        ({"model": "/data/DeepSeek-R1", "model_source": "path"}, False, "no commit of it"),
        ({"trust_remote_code": False}, False, "set in the inventory"),
        ({"trust_remote_code": True, "model_revision": "main"}, True, "the inventory sets"),
        ({"trust_remote_code": True, "model_source": "modelscope"}, True, "the inventory sets"),
        ({"engine_args": ["--trust-remote-code"], "model_revision": "main"}, True, "engine_args"),
    ],
)
def test_who_decides(cluster: Cluster, settings: dict[str, Any], flag: bool, words: str) -> None:
    plan = planned(cluster, **settings)
    assert has_flag(plan) is flag
    assert words in plan.services[0].trust_reason
    if not flag:
        assert "The engines have their own code for this family" in plan.services[0].trust_reason


def test_a_revision_of_the_inventory_is_kept(cluster: Cluster) -> None:
    assert planned(cluster, model_revision="v2").services[0].weights.revision == "v2"
    assert planned(cluster, model_source="modelscope").services[0].weights.revision is None


def test_a_commit_that_is_named_is_the_same(cluster: Cluster) -> None:
    assert has_flag(planned(cluster, model_revision=catalogue.trusted_commit(R1, "huggingface")))


def test_any_other_model_with_code_is_not_trusted(cluster: Cluster) -> None:
    plan = planned(cluster, model("Qwen/QwQ-32B", remote_code=True), model="Qwen/QwQ-32B")
    assert not has_flag(plan)
    assert "stops while loading" in plan.services[0].trust_reason
    assert "`trust_remote_code=true`" in plan.services[0].trust_reason


@pytest.mark.parametrize("id", ["moonshotai/Kimi-K2.5", "moonshotai/Kimi-K2-Instruct"])
def test_a_family_that_needs_its_code_is_refused_without(cluster: Cluster, id: str) -> None:
    """L2: it failed after a download of 85 minutes."""
    checkpoint = model(id)
    with pytest.raises(InputError, match="needs its own Python code, which may not run") as raised:
        planned(cluster, checkpoint, model=id)
    assert "write `trust_remote_code=true` under [all:vars]" in str(raised.value.hint)
    assert has_flag(planned(cluster, checkpoint, model=id, trust_remote_code=True))


def test_a_model_without_code(cluster: Cluster) -> None:
    plan = planned(cluster, model("Qwen/QwQ-32B"), model="Qwen/QwQ-32B")
    assert not has_flag(plan)
    assert plan.services[0].trust_reason == "The model contains no code."


def test_settings_that_contradict_each_other(cluster: Cluster) -> None:
    with pytest.raises(InputError, match="trust_remote_code=false, but engine_args has"):
        planned(cluster, trust_remote_code=False, engine_args=["--trust-remote-code"])


def test_the_description_comes_from_the_same_commit(cluster: Cluster) -> None:
    assert trust.revision(cluster.services[0].settings) == catalogue.trusted_commit(R1, "huggingface")


def test_the_table_shows_the_decision(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    print_plan(planned(cluster))
    print_plan(planned(cluster, trust_remote_code=False))
    shown = capsys.readouterr().out
    assert "Remote code: on. " in shown
    assert "Remote code: off. " in shown
    assert f"at revision {catalogue.trusted_commit(R1, 'huggingface')}" in shown


def test_the_reference_plan_keeps_the_flag_by_its_own_line() -> None:
    inventory = ROOT / "inventories" / "a100x4.ini"
    assert has_flag(plan_of(inventory))
    assert not has_flag(plan_of(inventory, "-e", "trust_remote_code=false"))
