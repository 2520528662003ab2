"""Plans beside published recipes: sizes and flags of data/published-plans.json, whose rows name a source."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from clusters import planned, with_hosts, with_settings
from headfirst.control.inventory.inventory import load
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.model import catalogue
from headfirst.decide.plan.types import PlannedService

DATA = json.loads((Path(__file__).parent / "data" / "published-plans.json").read_text(encoding="utf-8"))
RECIPES = {recipe["source"] + " " + recipe["engine"]: recipe for recipe in DATA["recipes"]}


@cache
def cluster(folder: Path) -> Cluster:
    path = folder / "cluster.ini"
    path.write_text("[head]\nn0 ansible_host=192.0.2.1\n\n[all:vars]\nmodel=x\ntrust_remote_code=true\n")
    return load([path])


def service(row: dict[str, Any], engine: str, folder: Path) -> PlannedService:
    """The plan of a row: its GPUs, its preset and the parsers of its model."""
    *nodes, gpus, gpu = row["on"].split(" x ")
    count = int(nodes[0]) if nodes else 1
    checkpoint = catalogue.lookup(row["model"])
    assert checkpoint is not None
    settings = {"model": row["model"], "engine": engine, "preset": row.get("preset"), "parsers": "auto"}
    links = {"nic": "eth0", "hca": "mlx5_0"} if count > 1 else {}
    empty = cluster(folder)
    hosts = [
        replace(empty.hosts[0], name=f"n{rank}", address=f"192.0.2.{rank + 1}", gpus=int(gpus), gpu=gpu)
        for rank in range(count)
    ]
    return planned(with_hosts(with_settings(empty, **settings, **links), hosts), checkpoint).services[0]


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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.mark.parametrize("name", RECIPES)
def test_the_plan_has_what_the_recipe_has(name: str, folder: Path) -> None:
    recipe = RECIPES[name]
    plans = ((row, service(row, recipe["engine"], folder)) for row in recipe["plans"])
    assert [
        (row["model"], row["on"], lacking) for row, plan in plans if (lacking := differences(row, plan))
    ] == []
