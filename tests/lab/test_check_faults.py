"""Faults made for real on two nodes: `deploy check` names each with its host and its rule, and no other."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from bare_nodes import BareNodes, bare_nodes
from headfirst.decide.cluster.settings import ServiceSettings
from readme_lab import deploy, succeeds

SETTINGS = ServiceSettings()
pytestmark = pytest.mark.lab

# Fixture: a Python whose clock is 90 s behind, for one process; the kernel's clock is this machine's too.
LATE_PYTHON = """\
mkdir -p /opt/late
cat >/opt/late/sitecustomize.py <<'END'
import time
right = time.time
time.time = lambda: right() - 90
END
printf '#!/bin/sh\\nPYTHONPATH=/opt/late exec python3 "$@"\\n' >/opt/late/python
chmod +x /opt/late/python
"""
ANSIBLE_PYTHON = "ansible_python_interpreter=/opt/late/python"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareNodes]:
    with bare_nodes("test-faults", "10.213.96", 2, tmp_path_factory.mktemp("lab")) as found:
        yield found


def on_node(node: str, command: str) -> None:
    subprocess.run(["docker", "exec", f"headfirst-test-faults-{node}", "sh", "-c", command], check=True)


@contextmanager
def broken(node: str, command: str, fix: str) -> Iterator[None]:
    on_node(node, command)
    try:
        yield
    finally:
        on_node(node, fix)


@contextmanager
def firewall(node: str, rule: str) -> Iterator[None]:
    """A rule in the node's network namespace, by this machine's iptables: a bare node has none."""
    inspect = ["docker", "inspect", "--format", "{{.State.Pid}}", f"headfirst-test-faults-{node}"]
    pid = subprocess.run(inspect, capture_output=True, text=True, check=True).stdout.strip()
    iptables = ["nsenter", "--net", "--target", pid, "iptables"]
    subprocess.run([*iptables, "--insert", "INPUT", *rule.split()], check=True)
    try:
        yield
    finally:
        subprocess.run([*iptables, "--delete", "INPUT", *rule.split()], check=True)


def check(inventory: Path) -> tuple[int, set[tuple[str, str]], str]:
    """Exit code, (host, rule) of each finding, and all that they say; not that nodes are containers."""
    done = deploy("check", inventory=inventory, options=["--json"])
    events = [json.loads(line) for line in done.stdout.splitlines()]
    found = [one for event in events for one in event.get("findings", [])]
    assert {one["host"] for one in found if one["id"] == "rank-ports"} == {"node1", "node2"}, done.stderr
    found = [one for one in found if one["id"] != "rank-ports"]
    assert found or done.returncode == 1, done.stdout + done.stderr
    said = "\n".join(f"{one['host']}: {one['what']}" for one in found)
    return done.returncode, {(one["host"], one["id"]) for one in found}, said


def test_a_firewall_between_two_nodes(nodes: BareNodes, tmp_path: Path) -> None:
    head, worker = nodes.addresses
    with firewall("node2", f"--protocol tcp --syn --source {head} ! --dport 22 --jump DROP"):
        code, found, said = check(nodes.two_hosts(tmp_path))
    assert (code, found) == (3, {("node1", "firewall")})
    assert f"{worker} answers, but not at port {SETTINGS.dist_port}" in said


def test_a_node_that_is_cut_off_from_the_other(nodes: BareNodes, tmp_path: Path) -> None:
    head, worker = nodes.addresses
    with firewall("node1", f"--source {worker} --jump DROP"):
        code, found, said = check(nodes.two_hosts(tmp_path))
    assert (code, found) == (3, {("node1", "peer"), ("node2", "peer")})
    assert f"node2: no answer from its peer {head}" in said


def test_different_mtus(nodes: BareNodes, tmp_path: Path) -> None:
    with broken("node2", "ip link set dev eth0 mtu 1400", "ip link set dev eth0 mtu 1500"):
        code, found, said = check(nodes.two_hosts(tmp_path))
    assert (code, found) == (3, {("node2", "mtu-differs")})
    assert "1400" in said and "1500" in said


@pytest.fixture
def wrong_interface_first(nodes: BareNodes) -> Iterator[None]:
    """An interface that leads nowhere comes before the right one on node2, by name and by number."""
    make = "ip link add aaa0 index 2 type bridge && ip address add 192.0.2.9/24 dev aaa0"
    with broken("node2", f"{make} && ip link set aaa0 up", "ip link delete aaa0"):
        yield


def test_a_wrong_interface_first_in_the_list(
    nodes: BareNodes, tmp_path: Path, wrong_interface_first: None
) -> None:
    plan = succeeds("plan", inventory=nodes.two_hosts(tmp_path), options=["--probe", "--json"])
    found = json.loads(plan)["services"][0]["replicas"][0]["nodes"]
    assert [node["network"]["nic"] for node in found] == ["eth0", "eth0"]

    code, found, said = check(nodes.two_hosts(tmp_path, head="nic=eth0", worker="nic=aaa0"))
    assert (code, found) == (1, {("node2", "nic-address")})
    assert "is on eth0, and the ranks are configured to use aaa0" in said


def test_an_interface_that_only_one_node_has(
    nodes: BareNodes, tmp_path: Path, wrong_interface_first: None
) -> None:
    code, found, said = check(nodes.two_hosts(tmp_path, "nic=aaa0"))
    assert (code, found) == (3, {("node1", "nic-name"), ("node2", "nic-address")})
    assert "node1: there is no interface aaa0" in said


def test_what_is_wrong_with_a_node_alone(nodes: BareNodes, tmp_path: Path) -> None:
    """A port in use, a clock that is behind, a full disk: all told at once."""
    on_node("node2", LATE_PYTHON)
    with (
        broken(
            "node1",
            f"mkdir -p /small && systemd-run --unit squatter python3 -m http.server {SETTINGS.engine_port}"
            " && timeout 60 bash -c"
            f" 'until (: </dev/tcp/127.0.0.1/{SETTINGS.engine_port}); do sleep 0.2; done'",
            "systemctl stop squatter",
        ),
        broken("node2", "mkdir -p /small && mount -t tmpfs -o size=1m tmpfs /small", "umount /small"),
    ):
        code, found, said = check(nodes.two_hosts(tmp_path, "weights_dir=/small", worker=ANSIBLE_PYTHON))
    assert (code, found) == (3, {("node1", "port"), ("node2", "clock"), ("node2", "disk")}), said
    assert f"port {SETTINGS.engine_port} is in use by python3" in said
    assert re.search(r"\b(?:8\d|90) s behind", said), said
    assert "free for /small" in said


def test_nothing_is_wrong_any_more(nodes: BareNodes, tmp_path: Path) -> None:
    assert check(nodes.two_hosts(tmp_path)) == (1, set(), "")
