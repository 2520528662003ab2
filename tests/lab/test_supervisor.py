"""The supervisors of two nodes bring a replica back by themselves: no controller takes part."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator

import pytest
from headfirst.decide.cluster.settings import ClusterSettings
from supervised import ADDRESSES, HANG_S, LIMIT_S, NAME, Replica, comes_back, supervised_replica, wait

PORT = ClusterSettings().supervisor_port
pytestmark = pytest.mark.lab
NODES = (pytest.param(1, marks=pytest.mark.slow), 2)


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replica]:
    with supervised_replica(tmp_path_factory.mktemp("supervisor")) as replica:
        yield replica


@pytest.fixture(autouse=True)
def serving(replica: Replica) -> None:
    """Each test begins with a replica that answers, is watched and has no pause left of the test before."""
    replica.forget_ends()
    end = time.monotonic() + 60
    while not (replica.answers() and replica.phase() == "serving"):
        assert time.monotonic() < end, replica.on(1, "journalctl -u headfirst-supervisor -n 30; docker ps -a")
        time.sleep(0.5)


@pytest.mark.parametrize("node", NODES)
def test_all_ranks_start_again_when_one_is_killed(replica: Replica, node: int) -> None:
    before = replica.starts()
    replica.on(node, f"kill -9 {replica.pid(node)}")
    comes_back(replica, before)
    head, worker = replica.starts()
    assert head < worker
    ended = [event for event in replica.events() if event["kind"] == "ended"][-1]
    assert f"rank {node - 1} ({ADDRESSES[node - 1]}): it ended with exit code 137" in ended["text"]


def test_all_ranks_start_again_when_one_hangs(replica: Replica) -> None:
    before = replica.starts()
    replica.on(2, f"kill -STOP {replica.pid(2)}")
    assert comes_back(replica, before) > HANG_S / 2
    assert "the engine hangs" in [event["text"] for event in replica.events() if event["kind"] == "ended"][-1]


def test_it_comes_back_after_docker_was_restarted(replica: Replica) -> None:
    before = replica.starts()
    replica.on(2, "systemctl stop docker.socket docker && systemctl start docker")
    if replica.starts() != before or not replica.answers():
        comes_back(replica, before)


@pytest.mark.parametrize("node", NODES)
def test_it_comes_back_after_a_node_was_rebooted(replica: Replica, node: int) -> None:
    before = replica.starts()
    subprocess.run(["docker", "restart", "--time", "2", replica.nodes.container(node)], check=True)
    comes_back(replica, before)


def test_supervisors_that_do_not_reach_each_other_end_nothing(replica: Replica) -> None:
    before = replica.starts()
    replica.on(2, f"iptables -I INPUT -p tcp --dport {PORT} -j DROP")
    try:
        time.sleep(HANG_S + 5)
        assert replica.answers() and replica.starts() == before
    finally:
        replica.on(2, f"iptables -D INPUT -p tcp --dport {PORT} -j DROP")


def test_a_node_that_is_cut_off_comes_back(replica: Replica) -> None:
    """Both ranks hang while the partition lasts; afterwards they are started together."""
    before = replica.starts()
    replica.on(2, f"iptables -I INPUT -s {ADDRESSES[0]} -j DROP")
    try:
        wait(lambda: replica.phase() == "down", LIMIT_S, "the hang was not noticed")
        time.sleep(3)
        assert not replica.answers()
    finally:
        replica.on(2, f"iptables -D INPUT -s {ADDRESSES[0]} -j DROP")
    comes_back(replica, before)


def test_a_held_replica_is_left_alone(replica: Replica) -> None:
    replica.on(1, f"/opt/headfirst/venv/bin/headfirst-supervisor hold {NAME}")
    wait(lambda: replica.phase() == "held", LIMIT_S, "the hold was not noticed")
    before = replica.starts()
    replica.on(2, f"docker stop {NAME}")
    time.sleep(5)
    assert replica.on(2, f"docker inspect --format '{{{{.State.Running}}}}' {NAME}") == "false"
    replica.on(1, f"/opt/headfirst/venv/bin/headfirst-supervisor release {NAME}")
    comes_back(replica, before)


def test_a_stopped_supervisor_is_started_again(replica: Replica) -> None:
    replica.on(1, "kill -9 $(systemctl show --property MainPID --value headfirst-supervisor)")
    wait(
        lambda: replica.on(1, "systemctl is-active headfirst-supervisor") == "active",
        LIMIT_S,
        "it stays away",
    )
    wait(lambda: replica.phase() == "serving", LIMIT_S, "it does not find the replica")


def test_a_second_run_of_the_roles_changes_nothing(replica: Replica) -> None:
    before = replica.starts()
    assert replica.ansible("play.yml").count("changed=0") == 2
    assert replica.starts() == before


def test_a_run_that_ended_before_the_restart_is_completed(replica: Replica) -> None:
    """The file has the token of the run, and the service another one."""
    file, service = "/etc/headfirst/supervisor.json", "systemctl restart headfirst-supervisor"
    replica.on(
        2,
        f"cp -p {file} /root/; sed -i s/a-token/another/ {file}; {service}; mv /root/supervisor.json {file}",
    )
    replica.ansible("site.yml", "--limit", "node2")
    wanted = replica.on(2, f"sha1sum {file} | cut -d' ' -f1")
    assert json.loads(replica.on(2, "cat /run/headfirst/supervisor.json"))["settings"] == wanted
