"""The ranks talk to each other on real nodes: while the engine serves, through a firewall, and broken off."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from headfirst.control.deployment.lab_nodes import lab_logins
from headfirst.control.inventory.inventory import load
from headfirst.decide.cluster.settings import ServiceSettings
from readme_lab import INVENTORY, ROOT, Service, deploy, on_node, running, started

pytestmark = pytest.mark.lab
NODES = ("node1", "node2")
HEAD, WORKER = "10.213.0.11", "10.213.0.12"
PORT = ServiceSettings().dist_port
# New connections from the head to high ports of the worker, but not the answers to the worker's own.
SWALLOWED = f"INPUT --protocol tcp --source {HEAD} --dport 32768:60999 --syn --jump DROP"
REFUSED = f"INPUT --protocol tcp --source {WORKER} --dport {PORT} --jump REJECT"

STANDALONE = """\
- hosts: head:workers
  become: true
  gather_facts: false
  any_errors_fatal: true
  roles:
    - role: headfirst.serving.comm_check
      vars:
        comm_check_rank: "{{ 0 if inventory_hostname in groups['head'] else 1 }}"
        comm_check_address: "{{ ansible_host }}"
        comm_check_container:
          image: headfirst/sglang-cpu:0.5.23
          environment:
            GLOO_SOCKET_IFNAME: eth0
        comm_check_seconds: 5
"""


def talk(*options: str, code: int = 0) -> dict[str, Any]:
    """What `deploy check --comm` says as JSON."""
    done = deploy("check", options=["--comm", "--json", *options])
    assert done.returncode == code, done.stdout[-3000:] + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def left_on(node: str) -> str:
    return on_node(
        node,
        "docker ps --all --quiet --filter name=headfirst-comm-check; ls /var/lib/headfirst | grep comm;"
        " ls /var/lib/headfirst/jobs | grep comm; systemctl list-units --all --no-legend 'headfirst-job-c*'",
    )


@pytest.fixture(autouse=True)
def undisturbed(service: Service) -> Iterator[None]:
    """Whatever the test finds: the ranks go on, and nothing of it stays."""
    before = [started(node) for node in NODES]
    yield
    assert [started(node) for node in NODES] == before
    assert all(running(node) for node in NODES)
    assert [left_on(node) for node in NODES] == ["", ""]


@pytest.fixture
def wall(request: pytest.FixtureRequest) -> Iterator[None]:
    """A firewall on a node, and one rule of it."""
    node, rule = request.param
    on_node(node, f"iptables --insert {rule}")
    yield
    on_node(node, f"iptables --delete {rule}")


def test_all_reduces_beside_the_engine() -> None:
    found = talk()
    assert found["rendezvous_held"]
    assert len(found["pairs"]) == 7
    assert all(pair["ok"] for pair in found["pairs"])
    [run] = found["runs"]
    assert (run["backend"], run["ranks"]) == ("gloo", 2)
    assert [row["bytes"] for row in run["rows"][:7]] == [8**power for power in range(1, 8)]
    assert run["stopped"] or run["rows"][-1]["bytes"] == 2**30
    for row in run["rows"]:
        assert row["wrong"] == 0
        assert row["algbw"] == pytest.approx(row["bytes"] / row["seconds"])
        assert row["busbw"] == pytest.approx(row["algbw"])  # 2 × (2 - 1) / 2


@pytest.mark.parametrize("wall", [("node2", SWALLOWED)], indirect=True)
def test_a_firewall_that_swallows_one_direction(wall: None) -> None:
    found = talk(code=3)
    assert not found["runs"]
    bad = [pair for pair in found["pairs"] if not pair["ok"]]
    assert {(pair["source"], pair["target"], pair["state"]) for pair in bad} == {
        ("node1", "node2", "dropped")
    }
    assert len(bad) == 3
    [finding] = found["findings"]
    assert f"node1 ({HEAD}) does not reach node2 ({WORKER})" in finding["what"]
    assert "silently dropped" in finding["what"]


@pytest.mark.slow
@pytest.mark.parametrize("wall", [("node1", REFUSED)], indirect=True)
def test_a_firewall_that_refuses_the_rendezvous(wall: None) -> None:
    done = deploy("check", options=["--comm", "--plain"])
    assert done.returncode == 3
    said = " ".join(done.stdout.split())
    assert f"node2 ({WORKER}) does not reach node1 ({HEAD}) on port {PORT} (rendezvous): refused" in said


@pytest.mark.slow
def test_a_wrong_interface_is_told_with_gloos_own_words() -> None:
    begin = time.monotonic()
    found = talk("-e", "engine_env='GLOO_SOCKET_IFNAME=lo'", code=3)
    assert "127.0.0.1" in found["findings"][0]["what"]
    assert "GLOO_SOCKET_IFNAME" in found["findings"][0]["fix"]
    # The rank that only waits is told, and does not wait for its own timeout.
    assert time.monotonic() - begin < 180


@pytest.mark.slow
def test_a_back_end_that_the_image_lacks() -> None:
    found = talk("--backend", "mpi", code=3)
    assert "no MPI" in found["findings"][0]["what"]


def test_an_image_that_is_not_there_yet() -> None:
    done = deploy("check", options=["--comm", "--plain", "-e", "engine_image=headfirst/none:1"])
    assert done.returncode == 3
    assert "deploy up -t host" in done.stderr


def test_broken_off() -> None:
    command = [str(ROOT / "deploy"), "check", str(INVENTORY), "--comm", "--plain"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    end = time.monotonic() + 120
    while not on_node("node2", "docker ps --quiet --filter name=headfirst-comm-check"):
        assert time.monotonic() < end
        time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "stopped before the end" in said


def test_the_role_alone(tmp_path: Path) -> None:
    """In a playbook of somebody else's, with nothing but its own variables."""
    collection = tmp_path / "ansible_collections" / "headfirst" / "serving"
    collection.parent.mkdir(parents=True)
    collection.symlink_to(ROOT)
    play = tmp_path / "site.yml"
    play.write_text(STANDALONE)
    access = next(iter(lab_logins(load([INVENTORY], [])).values()))
    done = subprocess.run(
        [
            *[str(ROOT / ".venv" / "bin" / "ansible-playbook"), "-i", str(INVENTORY), str(play)],
            *["-e", f"ansible_user={access.user} ansible_ssh_private_key_file={access.private_key}"],
            *["-e", f"ansible_ssh_common_args='-o UserKnownHostsFile={access.known_hosts}'"],
        ],
        env=os.environ | {"ANSIBLE_COLLECTIONS_PATH": str(tmp_path), "ANSIBLE_SHOW_CUSTOM_STATS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert '"busbw"' in done.stdout
    assert "changed=0" in done.stdout
