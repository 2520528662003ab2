"""A plan with the answers of an image beside the one that was printed before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from headfirst.control.deployment.prepare import prepare
from headfirst.decide.plan.answered import Change, changes
from headfirst.decide.plan.types import ChosenArgument, Plan

INVENTORY = """[head]
node1 ansible_host=192.0.2.11
[workers]
node2 ansible_host=192.0.2.12
[all:vars]
gpus=1
gpu=A100-80G
nic=eth0
hca=none
parsers=none
model=Qwen/Qwen3-8B
served_model_name=chat
"""


def changed(plan: Plan, **container: Any) -> Plan:
    """The plan with other fields of each container of its only service."""
    service = plan.services[0]
    replica = service.replicas[0]
    nodes = [
        node.model_copy(update={"container": node.container.model_copy(update=container)})
        for node in replica.nodes
    ]
    replicas = [replica.model_copy(update={"nodes": nodes})]
    return plan.model_copy(update={"services": [service.model_copy(update={"replicas": replicas})]})


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """Two ranks with a parser that a rule chose and an argument of the user."""
    path = tmp_path_factory.mktemp("answered") / "cluster.ini"
    path.write_text(INVENTORY)
    plan = prepare([Path(path)], [], probe=False).plan
    plan = changed(
        plan, command=["serve", "--tool-call-parser", "qwen", "--seed", "7"], environment={"A": "1"}
    )
    chosen = ChosenArgument(flag="--tool-call-parser", value="qwen", reason="r", source="s")
    service = plan.services[0].model_copy(update={"chosen_arguments": [chosen]})
    return plan.model_copy(update={"services": [service]})


def test_equal_plans_have_no_difference(plan: Plan) -> None:
    assert changes(plan, plan) == []


def test_an_argument_of_a_rule_may_be_left_out(plan: Plan) -> None:
    after = changed(plan, command=["serve", "--seed", "7"])
    assert changes(plan, after) == [Change("chat", "without --tool-call-parser qwen", True)]


@pytest.mark.parametrize(
    ("after", "text"),
    [
        ({"command": ["serve", "--tool-call-parser", "qwen"]}, "without --seed 7"),
        (
            {"command": ["serve", "--tool-call-parser", "other", "--seed", "7"]},
            "--tool-call-parser qwen → other",
        ),
        ({"command": ["serve", "--tool-call-parser", "qwen", "--seed", "7", "--x"]}, "with --x"),
        ({"environment": {}}, "environment A"),
    ],
)
def test_every_other_difference_is_a_change(plan: Plan, after: dict[str, Any], text: str) -> None:
    assert changes(plan, changed(plan, **after)) == [Change("chat", text, False)]


def test_another_layout_is_a_change(plan: Plan) -> None:
    service = plan.services[0].model_copy(update={"tensor_parallel": 2, "pipeline_parallel": 1})
    (change, *_) = changes(plan, plan.model_copy(update={"services": [service]}))
    assert change == Change("chat", "TP 1 × PP 2 → TP 2 × PP 1", False)
