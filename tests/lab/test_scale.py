"""More hosts than twenty: 100 stand-ins through plan and check, 25 through every stage of `up`.

All hosts share this machine's processors: with 100 the stages of `up` take more than four minutes on two
cores, so benchmarks/scale.py measures that, and 25 prove that nothing stops at 20.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stand_ins.addresses import name
from stand_ins.hosts import StandIns

pytestmark = pytest.mark.lab
DEPLOY = str(Path(sys.executable).with_name("deploy"))
MANY, STAGED = 100, 25


def deploy(hosts: StandIns, verb: str, *options: str) -> subprocess.CompletedProcess[str]:
    """`deploy` on the hosts, where a login may open 1024 files as on most machines."""
    command = ["prlimit", "--nofile=1024:4096", DEPLOY, verb, str(hosts.inventory), *options]
    return subprocess.run(
        hosts.command(*command), env=hosts.environment, capture_output=True, text=True, check=False
    )


def events(output: str, kind: str) -> list[dict[str, Any]]:
    return [one for one in map(json.loads, output.splitlines()) if one["event"] == kind]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIns]:
    with StandIns(tmp_path_factory.mktemp("many"), MANY) as hosts:
        yield hosts


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIns]:
    with StandIns(tmp_path_factory.mktemp("staged"), STAGED) as hosts:
        yield hosts


def test_a_plan_of_a_hundred_hosts(many: StandIns) -> None:
    done = deploy(many, "plan", "--json")
    assert done.returncode == 0, done.stderr
    ranks = json.loads(done.stdout)["nodes"]
    assert [rank["host"] for rank in ranks] == [name(number) for number in range(1, MANY + 1)]


def test_a_check_of_a_hundred_hosts(many: StandIns) -> None:
    done = deploy(many, "check", "--json")
    # 1: ready with warnings; packets between the stand-ins leave from the wrong address, on each host once.
    assert done.returncode == 1, done.stderr[-4000:]
    found = [finding for event in events(done.stdout, "findings_reported") for finding in event["findings"]]
    assert {finding["id"] for finding in found} <= {"nic-route", "stuck", "clock"}
    assert len([finding for finding in found if finding["id"] == "nic-route"]) <= MANY
    assert max(len(finding["what"]) for finding in found) < 300


def test_a_status_of_a_hundred_hosts(many: StandIns) -> None:
    done = deploy(many, "status", "--json")
    assert done.returncode == 3, done.stderr
    assert [rank["state"] for rank in json.loads(done.stdout)["ranks"]] == ["missing"] * MANY


def test_every_stage_on_more_hosts_than_twenty(staged: StandIns) -> None:
    done = deploy(staged, "up", "--plain")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    for stage in ("check", "tuning", "docker", "image", "tools", "weights", "engine", "webui"):
        assert f"== {stage}: " in done.stdout
    status = deploy(staged, "status", "--json")
    assert status.returncode == 0, status.stdout + status.stderr
    assert [rank["state"] for rank in json.loads(status.stdout)["ranks"]] == ["running"] * STAGED
