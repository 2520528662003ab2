"""`deploy check` of 100 stand-ins, and every stage of `up` on 25: nothing stops at twenty hosts.

All hosts share this machine's processors; the model's heads divide by 25. A login may open 1024 files, as on
most machines.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from stand_ins.hosts import StandIns

pytestmark = pytest.mark.lab
MANY, STAGED = 100, 25


def test_a_check_of_a_hundred_hosts(tmp_path: Path) -> None:
    with StandIns(tmp_path / "many", MANY) as hosts:
        done = hosts.deploy("check", "--json")
    # 1: ready with warnings; packets between the stand-ins leave from the wrong address, on each host once.
    assert done.returncode == 1, done.stderr[-4000:]
    events = map(json.loads, done.stdout.splitlines())
    found = [finding for event in events for finding in event.get("findings", [])]
    assert {finding["id"] for finding in found} <= {"nic-route", "stuck", "clock", "rank-ports"}
    assert len([finding for finding in found if finding["id"] == "nic-route"]) <= MANY
    assert max(len(finding["what"]) for finding in found) < 300


def test_every_stage_on_more_hosts_than_twenty(tmp_path: Path) -> None:
    with StandIns(tmp_path / "staged", STAGED) as hosts:
        done = hosts.deploy("up", "--plain")
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr
        status = hosts.deploy("status", "--json")
    for stage in ("check", "tuning", "docker", "image", "tools", "weights", "engine", "supervisor", "webui"):
        assert f"== {stage}: " in done.stdout
    assert status.returncode == 0, status.stdout + status.stderr
    ranks = json.loads(status.stdout)["replicas"][0]["ranks"]
    assert [rank["state"] for rank in ranks] == ["running"] * STAGED
