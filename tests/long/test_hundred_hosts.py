"""`deploy check` of 100 stand-ins, and every stage of `up` on 25: nothing stops at twenty hosts.

All hosts share this machine's processors; the model's heads divide by 25. A login may open 1024 files, as on
most machines.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from stand_ins.hosts import StandIns

pytestmark = pytest.mark.lab
DEPLOY = str(Path(sys.executable).with_name("deploy"))
MANY, STAGED = 100, 25


def _reported(output: str) -> list[dict[str, Any]]:
    events = map(json.loads, output.splitlines())
    return [event for event in events if event["event"] == "findings_reported"]


def deploy(hosts: StandIns, verb: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = ["prlimit", "--nofile=1024:4096", DEPLOY, verb, str(hosts.inventory), *options]
    return subprocess.run(
        hosts.command(*command), env=hosts.environment, capture_output=True, text=True, check=False
    )


def test_a_check_of_a_hundred_hosts(tmp_path: Path) -> None:
    with StandIns(tmp_path / "many", MANY) as hosts:
        done = deploy(hosts, "check", "--json")
    # 1: ready with warnings; packets between the stand-ins leave from the wrong address, on each host once.
    assert done.returncode == 1, done.stderr[-4000:]
    found = [finding for event in _reported(done.stdout) for finding in event["findings"]]
    assert {finding["id"] for finding in found} <= {"nic-route", "stuck", "clock", "rank-ports"}
    assert len([finding for finding in found if finding["id"] == "nic-route"]) <= MANY
    assert max(len(finding["what"]) for finding in found) < 300


def test_every_stage_on_more_hosts_than_twenty(tmp_path: Path) -> None:
    with StandIns(tmp_path / "staged", STAGED) as hosts:
        every_stage(hosts)


def every_stage(hosts: StandIns) -> None:
    done = deploy(hosts, "up", "--plain")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    for stage in ("check", "tuning", "docker", "image", "tools", "weights", "engine", "supervisor", "webui"):
        assert f"== {stage}: " in done.stdout
    status = deploy(hosts, "status", "--json")
    assert status.returncode == 0, status.stdout + status.stderr
    assert [rank["state"] for rank in json.loads(status.stdout)["replicas"][0]["ranks"]] == [
        "running"
    ] * STAGED
