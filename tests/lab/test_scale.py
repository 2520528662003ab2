"""A hundred hosts: stand-ins through plan and status. tests/long has their check, and every stage of `up`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from stand_ins.addresses import name
from stand_ins.hosts import StandIns

pytestmark = pytest.mark.lab
DEPLOY = str(Path(sys.executable).with_name("deploy"))
MANY = 100


def deploy(hosts: StandIns, verb: str, *options: str) -> subprocess.CompletedProcess[str]:
    """`deploy` on the hosts, where a login may open 1024 files as on most machines."""
    command = ["prlimit", "--nofile=1024:4096", DEPLOY, verb, str(hosts.inventory), *options]
    return subprocess.run(
        hosts.command(*command), env=hosts.environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIns]:
    with StandIns(tmp_path_factory.mktemp("many"), MANY) as hosts:
        yield hosts


def test_a_plan_of_a_hundred_hosts(many: StandIns) -> None:
    done = deploy(many, "plan", "--json")
    assert done.returncode == 0, done.stderr
    ranks = json.loads(done.stdout)["services"][0]["replicas"][0]["nodes"]
    assert [rank["host"] for rank in ranks] == [name(number) for number in range(1, MANY + 1)]


def test_a_status_of_a_hundred_hosts(many: StandIns) -> None:
    done = deploy(many, "status", "--json")
    assert done.returncode == 3, done.stderr
    assert [rank["state"] for rank in json.loads(done.stdout)["replicas"][0]["ranks"]] == ["missing"] * MANY
