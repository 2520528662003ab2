"""A hundred hosts: stand-ins through plan and status. tests/long has their check, and every stage of `up`."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from stand_ins.addresses import name
from stand_ins.hosts import StandIns

pytestmark = pytest.mark.lab
MANY = 100


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIns]:
    with StandIns(tmp_path_factory.mktemp("many"), MANY) as hosts:
        yield hosts


def test_a_plan_of_a_hundred_hosts(many: StandIns) -> None:
    done = many.deploy("plan", "--json")
    assert done.returncode == 0, done.stderr
    ranks = json.loads(done.stdout)["services"][0]["replicas"][0]["nodes"]
    assert [rank["host"] for rank in ranks] == [name(number) for number in range(1, MANY + 1)]


def test_a_status_of_a_hundred_hosts(many: StandIns) -> None:
    done = many.deploy("status", "--json")
    assert done.returncode == 3, done.stderr
    assert [rank["state"] for rank in json.loads(done.stdout)["replicas"][0]["ranks"]] == ["missing"] * MANY
