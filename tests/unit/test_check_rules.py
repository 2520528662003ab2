"""Rules of role check: each speaks for what it is about, and for nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.headfirst.serving.plugins.plugin_utils import check_cluster_rules, check_rules

FIT: dict[str, Any] = {
    "hostname": "node1",
    "os": "debian-12",
    "os_name": "Debian GNU/Linux 12 (bookworm)",
    "python": "3.11.2",
    "architecture": "x86_64",
    "uid": 0,
    "memory_bytes": 64 * 10**9,
    "disk_free_bytes": 100 * 10**9,
    "disk_used_bytes": 0,
    "clock_skew_s": 0.4,
    "nics": [{"name": "eth0", "addresses": ["10.0.0.1"]}],
    "busy_ports": [],
    "unreachable_peers": [],
}
LIMITS: dict[str, Any] = {
    "supported_os": ["debian-12", "ubuntu-22.04", "ubuntu-24.04"],
    "architectures": ["x86_64"],
    "python_min": "3.10",
    "disk_path": "/var/lib/headfirst",
    "min_disk_gb": 100.0,
    "min_memory_gb": 64.0,
    "max_clock_skew_s": 30.0,
    "address": "10.0.0.1",
}


def ids(**facts: Any) -> list[str]:
    return [found["id"] for found in check_rules.check_host("node1", {**FIT, **facts}, LIMITS)]


def test_a_fit_host_has_no_findings() -> None:
    assert ids() == []


@pytest.mark.parametrize("system", ["ubuntu-22.04", "ubuntu-24.04"])
def test_ubuntu_is_fit(system: str) -> None:
    assert ids(os=system, python="3.10.12") == []


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"os": "debian-11"}, "os"),
        ({"python": "3.9.2"}, "python"),
        ({"architecture": "ppc64le"}, "architecture"),
        ({"uid": 1000}, "sudo"),
        ({"memory_bytes": 63 * 10**9}, "memory"),
        ({"disk_free_bytes": 99 * 10**9}, "disk"),
        ({"clock_skew_s": -31.0}, "clock"),
        ({"nics": [{"name": "docker0", "addresses": ["172.17.0.1"]}]}, "address"),
        ({"busy_ports": [{"port": 30000, "process": "nginx (7)", "container": ""}]}, "port"),
        ({"unreachable_peers": ["10.0.0.2"]}, "peer"),
    ],
)
def test_each_fault_is_found_alone(facts: dict[str, Any], expected: str) -> None:
    assert ids(**facts) == [expected]


def test_weights_that_are_there_already_count_as_space() -> None:
    assert ids(disk_free_bytes=20 * 10**9, disk_used_bytes=80 * 10**9) == []


def test_a_port_of_our_own_container_is_fine() -> None:
    assert ids(busy_ports=[{"port": 30000, "process": "python (7)", "container": "headfirst-engine"}]) == []


def test_every_finding_says_why_and_what_to_do() -> None:
    for rule in check_rules.RULES:
        assert rule.severity in ("error", "warning")
        assert rule.why.endswith(".") and rule.fix.strip()


def test_hosts_are_compared() -> None:
    facts = {"a": {**FIT}, "b": {**FIT, "architecture": "aarch64"}, "c": {**FIT, "hostname": "c"}}
    found = check_cluster_rules.compare(facts, {"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.1"})
    assert [(one["id"], one["host"]) for one in found] == [
        ("hostname", "a"),
        ("hostname", "b"),
        ("address-unique", "a"),
        ("address-unique", "c"),
        ("architecture", "a"),
        ("architecture", "b"),
        ("architecture", "c"),
    ]


# Texts as OpenSSH 9.2, sudo 1.9 and ansible-core 2.19 wrote them.
@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (
            {"unreachable": True, "msg": "ssh: connect to host 192.0.2.1 port 22: Connection refused"},
            "reachability",
        ),
        ({"unreachable": True, "msg": "ssh: Could not resolve hostname nowhere.invalid"}, "reachability"),
        ({"unreachable": True, "msg": "nosudo@10.213.20.12: Permission denied (publickey)."}, "ssh-login"),
        ({"unreachable": True, "msg": "Host key verification failed."}, "host-key"),
        ({"failed": True, "msg": "Task failed: Missing sudo password"}, "sudo"),
        ({"failed": True, "msg": "The module interpreter '/usr/bin/python7' was not found."}, "python"),
        ({"failed": True, "module_stderr": "/bin/sh: 1: /usr/bin/python3: not found", "msg": ""}, "python"),
        ({"failed": True, "msg": "OSError: [Errno 28] No space left on device"}, "disk"),
        ({"failed": True, "msg": "Something new"}, "facts"),
    ],
)
def test_a_host_without_facts_is_explained(result: dict[str, Any], expected: str) -> None:
    found = check_cluster_rules.silent_host("node1", result)
    assert (found["id"], found["severity"], found["host"]) == (expected, "error", "node1")
    assert found["fix"]
