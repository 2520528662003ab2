"""Ranks that die, never meet, or are refused by the engine: said at once, taken up by the next `up`."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from headfirst.decide.cluster.settings import ServiceSettings
from readme_lab import INVENTORY, Service, bring_up, deploy, on_node, running, started, succeeds

pytestmark = pytest.mark.lab
NODES = ("node1", "node2")
# The rendezvous of the ranks.
DIST_PORT = ServiceSettings().dist_port
# Rank 1's container, recreated from an image with another label; without labels of its own it is not ours.
OTHER_IMAGE = """
import docker
client = docker.from_env()
old = client.containers.get("headfirst-engine")
with open("/tmp/Dockerfile", "w") as file:
    file.write(f"FROM {old.image.id}\\nLABEL build=other\\n")
other, _ = client.images.build(path="/tmp", tag="headfirst/other:1")
told = client.api.inspect_container(old.id)
old.remove(force=True)
config = {**told["Config"], "Image": other.id, "Labels": {}, "HostConfig": told["HostConfig"]}
client.api.create_container_from_config(config, "headfirst-engine")
"""
CUT = f"INPUT --protocol tcp --dport {DIST_PORT} ! --source 127.0.0.0/8 --jump DROP"


def starts() -> list[str]:
    return [started(node) for node in NODES]


def attempt(arguments: str) -> subprocess.CompletedProcess[str]:
    return deploy("up", options=["--tags", "serve", "-e", f"engine_args='{arguments}'", "--plain"])


def diagnosis() -> dict[str, Any]:
    done = deploy("diagnose", options=["--json"])
    assert done.returncode == 1, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["replicas"][0]["found"]
    return found


def test_nothing_is_wrong(service: Service) -> None:
    assert "Nothing is wrong" in succeeds("diagnose")


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


@pytest.mark.slow
def test_a_rank_of_another_image_is_named_and_replaced(service: Service) -> None:
    on_node("node2", f"python3 -c '{OTHER_IMAGE}'")
    on_node("node1", "docker restart --time 1 headfirst-engine")
    on_node("node2", "docker start headfirst-engine")

    first = diagnosis()["decisive"]
    assert (first["host"], first["rank"], first["rule"]) == ("node2", 1, "images-differ")


@pytest.fixture
def cut_rendezvous() -> Iterator[None]:
    """No worker reaches the head's rendezvous."""
    on_node("node1", f"iptables --insert {CUT}")
    yield
    on_node("node1", f"iptables --delete {CUT}")


@pytest.fixture
def no_supervisors() -> Iterator[None]:
    """Nobody starts the version before again while the test reads what the run has left."""
    for node in NODES:
        on_node(node, "systemctl stop headfirst-supervisor")
    yield
    for node in NODES:
        on_node(node, "systemctl start headfirst-supervisor")


@pytest.mark.slow
def test_a_worker_that_never_comes(service: Service, no_supervisors: None, cut_rendezvous: None) -> None:
    done = attempt("--dist-timeout 30")
    assert done.returncode == 1
    assert "not all ranks came to the rendezvous" in done.stderr or "did not reach rank 0" in done.stderr
    assert "dist_port" in done.stderr
    assert f"deploy diagnose {INVENTORY}" in done.stderr
    assert not any(running(node) for node in NODES)
    assert diagnosis()["decisive"]["rule"] in ("rank-missing", "head-unreachable")


@pytest.mark.slow
def test_what_failed_is_taken_up(service: Service) -> None:
    bring_up()
    assert all(running(node) for node in NODES)


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
        "cgroup_parent": host["CgroupParent"] or None,
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


@pytest.mark.slow
def test_a_change_that_fails_leaves_the_old_version(service: Service) -> None:
    done = attempt("--attention-backend fa3")
    assert done.returncode == 1
    assert "Rank " in done.stderr
    assert "  | " in done.stderr
    assert "The previous version serves again" in done.stderr
    assert (
        "does not answer until its ranks have started again: the last start took" in done.stdout + done.stderr
    )
    assert deploy("status").returncode == 0
    assert deploy("rollback", options=["--plain"]).returncode == 2


@pytest.mark.slow
@pytest.mark.parametrize("what", ["a rank crashes", "a node reboots"])
def test_the_ranks_meet_again_without_a_run(service: Service, what: str) -> None:
    before = starts()
    if what == "a rank crashes":
        on_node("node2", "kill -9 $(docker inspect --format '{{.State.Pid}}' headfirst-engine)")
    else:
        subprocess.run(["docker", "restart", "headfirst-lab-node2"], check=True, stdout=subprocess.PIPE)
    end = time.monotonic() + 600
    while time.monotonic() < end:
        if deploy("status").returncode == 0 and starts() != before:
            break
        time.sleep(5)
    assert deploy("status").returncode == 0
    assert all(new > old for new, old in zip(starts(), before, strict=True))
