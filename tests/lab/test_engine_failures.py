"""What runs is what was planned; a rank that ended is reported, and the next `up` starts all of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from readme_lab import INVENTORY, Service, bring_up, deploy, diagnosis, on_node, started

pytestmark = pytest.mark.lab
NODES = ("node1", "node2")


def starts() -> list[str]:
    return [started(node) for node in NODES]


def test_nothing_is_wrong(service: Service) -> None:
    done = deploy("diagnose")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Nothing is wrong" in done.stdout


def test_a_second_up_restarts_nothing(service: Service) -> None:
    before = starts()
    assert bring_up().changed == 0
    assert starts() == before


def test_up_brings_all_ranks_back_where_no_supervisor_runs(service: Service) -> None:
    before = starts()
    for node in NODES:
        on_node(node, "systemctl stop headfirst-supervisor")
    on_node("node2", "docker kill headfirst-engine")

    first = diagnosis()["decisive"]
    assert (first["host"], first["rank"], first["rule"]) == ("node2", 1, "rank-ended")
    assert "signal 9" in first["means"]
    status = deploy("status")
    assert status.returncode == 3
    assert f"deploy diagnose {INVENTORY}" in status.stdout

    again = bring_up("--tags", "supervisor,serve")
    assert again.changed > 0
    assert all(new > old for new, old in zip(starts(), before, strict=True))
    for node in NODES:
        on_node(node, "systemctl is-active headfirst-supervisor")


def test_what_runs_is_what_was_planned(service: Service) -> None:
    planned = json.loads(deploy("plan", options=["--json"]).stdout)
    for number, node in enumerate(planned["services"][0]["replicas"][0]["nodes"]):
        found = json.loads(on_node(NODES[number], "docker inspect headfirst-engine"))[0]
        assert created(found) == node["container"]


def created(found: dict[str, Any]) -> dict[str, Any]:
    """`docker inspect` of a container as the fields of its plan, without what image and labels add."""
    config, host = found["Config"], found["HostConfig"]
    ours = dict(line.split("=", 1) for line in config["Env"])
    image = json.loads(config["Labels"]["headfirst.spec.json"])["environment"].keys()
    return {
        "name": found["Name"].lstrip("/"),
        "image": config["Image"],
        "user": config["User"] or None,
        "entrypoint": (config["Entrypoint"] or [None])[0],
        "command": config["Cmd"],
        "environment": {name: ours[name] for name in image},
        "env_file": None,
        "network_mode": host["NetworkMode"],
        "ipc_mode": host["IpcMode"],
        "shm_size": f"{host['ShmSize'] // 2**20}m",
        "volumes": host["Binds"],
        "devices": host["Devices"] or [],
        "gpus": host["DeviceRequests"],
        "cap_add": host["CapAdd"] or [],
        "cap_drop": host["CapDrop"] or [],
        "ulimits": {limit["Name"]: limit["Soft"] for limit in host["Ulimits"] or []},
        "labels": {key: text for key, text in config["Labels"].items() if not key.startswith("headfirst.")},
        # Docker's empty policy is "no".
        "restart_policy": host["RestartPolicy"]["Name"] or "no",
        "init": host["Init"],
    }
