"""Plans beside published recipes: sizes and flags of data/published-plans.json, whose rows name a source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from clusters import on, planned, with_settings
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.plan.types import PlannedService
from known_models import model

DATA = json.loads((Path(__file__).parent / "data" / "published-plans.json").read_text(encoding="utf-8"))
RECIPES = {recipe["source"] + " " + recipe["engine"]: recipe for recipe in DATA["recipes"]}


INVENTORY = "[head]\nn0 ansible_host=192.0.2.1\n\n[all:vars]\nmodel=x\ntrust_remote_code=true\n"


def service(cluster: Cluster, row: dict[str, Any], engine: str) -> PlannedService:
    """The plan of a row: its GPUs, its preset and the parsers of its model."""
    settings = {"model": row["model"], "engine": engine, "preset": row.get("preset"), "parsers": "auto"}
    hosts = on(cluster, row["on"])
    links = {"nic": "eth0", "hca": "mlx5_0"} if hosts.ranks[1:] else {}
    return planned(with_settings(hosts, **settings, **links), model(row["model"])).services[0]


def read(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


def differences(row: dict[str, Any], plan: PlannedService) -> list[str]:
    """What of the row the plan does not have."""
    command = plan.replicas[0].nodes[0].container.command
    sizes = [plan.tensor_parallel, plan.pipeline_parallel, plan.data_parallel]
    lacking = [] if plan.fit.fits else [plan.fit.reason]
    if sizes != row.get("sizes", sizes):
        lacking.append(f"sizes are {sizes}")
    for flag, value in row.get("has", {}).items():
        given = command[command.index(flag) + 1 :][:1] if flag in command else None
        if given is None or (value and [read(word) for word in given] != [read(value)]):
            lacking.append(f"{flag} is {given}")
    if row.get("why", "") not in " ".join(plan.arguments_left_out):
        lacking.append(" ".join(plan.arguments_left_out))
    return lacking


@pytest.mark.parametrize("name", RECIPES)
def test_the_plan_has_what_the_recipe_has(name: str, cluster: Cluster) -> None:
    recipe = RECIPES[name]
    plans = ((row, service(cluster, row, recipe["engine"])) for row in recipe["plans"])
    assert [
        (row["model"], row["on"], lacking) for row, plan in plans if (lacking := differences(row, plan))
    ] == []
