"""What the ranks' meeting and their all-reduces tell, and what of it is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from ansible_collections.headfirst.serving.plugins.plugin_utils.comm_rules import findings, report

GBIT = 1e9 / 8
HIGH = [40001, 40002, 40003]
ADDRESSES = {"node1": "10.0.0.1", "node2": "10.0.0.2", "node3": "10.0.0.3"}
HEAD_LOG = [
    "node1:1:1 [0] NCCL INFO Using network IB",
    "node1:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA",
]
SOCKET_LOG = ["node1:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0"]
INDIRECT_LOG = ["node1:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0"]
Hosts = dict[str, dict[str, Any]]


def met(count: int = 2, *, rendezvous: str = "open", **kinds: str) -> Hosts:
    """Hosts that reach each other, but for `kinds`: node1_node2_40001="dropped" says how a port fails."""
    names = list(ADDRESSES)[:count]
    hosts: Hosts = {}
    for rank, name in enumerate(names):
        listening = dict.fromkeys(map(str, HIGH), "open") | ({"5000": rendezvous} if rank == 0 else {})
        reached = []
        for peer in names:
            for port in [*HIGH, *([5000] if peer == "node1" else [])] if peer != name else []:
                held = "stranger" if (port, rendezvous) == (5000, "held") else "ok"
                state = kinds.get(f"{name}_{peer}_{port}", held)
                words = "No route to host" if state == "unreachable" else ""
                reached.append({"address": ADDRESSES[peer], "port": port, "state": state, "words": words})
        hosts[name] = {
            "rank": rank,
            "address": ADDRESSES[name],
            "ports": HIGH,
            "rendezvous_port": 5000,
            "link_gbit": 25.0,
            "rdma_gbit": 0.0,
            "reach": {"listening": listening, "reached": reached, "arrived": []},
        }
    return hosts


def row(size: int, gbit: float, *, wrong: int = 0) -> dict[str, Any]:
    rate = gbit * GBIT
    return {
        "bytes": size,
        "seconds": size / rate,
        "algbw": rate,
        "busbw": rate,
        "wrong": wrong,
        "graph": False,
    }


def ran(
    *rows: dict[str, Any],
    backend: str = "gloo",
    log: list[str] | None = None,
    rdma: float = 0.0,
    errors: Mapping[str, dict[str, Any]] | None = None,
) -> Hosts:
    hosts = met()
    for name, known in hosts.items():
        run = {"backend": backend, "ranks": 2, "rows": list(rows), "stopped": ""}
        known["rdma_gbit"] = rdma
        error = (errors or {}).get(name)
        known["run"] = {
            "comm": {
                "runs": [run],
                "torch": "2.9",
                "nccl_log": log or [],
                "errors": [{"at": 1.0, "doing": "gloo 4 KiB", "fix": "", "echo": False, **error}]
                if error
                else [],
            }
        }
    return hosts


def ids(hosts: Hosts) -> list[str]:
    return [found["id"] for found in findings(hosts)]


def test_hosts_that_meet_have_a_port_for_the_collectives() -> None:
    told = report(met(3))
    assert told["port"] == HIGH[0]
    assert len(told["pairs"]) == 3 * 2 * 3 + 2
    assert not findings(met(3))


def test_the_direction_the_ports_and_the_manner_are_named() -> None:
    hosts = met(node1_node2_40002="dropped", node1_node2_40003="dropped")
    [found] = findings(hosts)
    assert found["host"] == "node2"
    assert "node1 (10.0.0.1) does not reach node2 (10.0.0.2) on port 40002, 40003" in found["what"]
    assert "silently dropped; 40001 can be reached" in found["what"]
    assert report(hosts)["port"] == 0


def test_each_direction_and_each_manner_is_a_finding_of_its_own() -> None:
    hosts = met(
        node1_node2_40001="unreachable", node2_node1_5000="refused", node2_node1_40001="dropped", count=2
    )
    told = sorted(found["what"] for found in findings(hosts))
    assert "unreachable: No route to host" in told[0]
    assert "40001: no answer" in told[1]
    assert "5000 (rendezvous): refused" in told[2]


def test_a_service_on_the_rendezvous_port_proves_the_way_to_it() -> None:
    hosts = met(rendezvous="held")
    told = report(hosts)
    assert told["rendezvous_held"]
    assert told["port"] == HIGH[0]
    assert not findings(hosts)


def test_what_each_finding_states() -> None:
    [stranger] = findings(met(node2_node1_5000="stranger"))
    assert "something else answers" in stranger["what"]
    [sums] = findings(ran(row(2**20, 6, wrong=3)))
    assert (sums["id"], sums["severity"]) == ("comm-sums", "error")
    assert "3 of 262144 sums" in sums["what"]
    [large] = findings(ran(row(512, 0.001), errors={"node1": {"message": "timed out"}}))
    assert "MTU" in large["fix"]
    hosts = ran(row(2**20, 6))
    hosts["node2"]["run"] = {"msg": "all-reduce ended with 125: could not select device driver"}
    [container] = findings(hosts)
    assert container["host"] == "node2"
    assert "could not select device driver" in container["what"]


def test_a_high_port_that_is_in_use_is_passed_over() -> None:
    hosts = met(node2_node1_40001="refused")
    hosts["node1"]["reach"]["listening"]["40001"] = "held"
    assert not findings(hosts)
    assert report(hosts)["port"] == HIGH[1]


def test_no_port_at_all_is_said() -> None:
    hosts = met()
    hosts["node1"]["reach"]["listening"] = dict.fromkeys(map(str, HIGH), "held") | {"5000": "open"}
    assert ids(hosts) == ["comm-ports"]


def nccl(gbit: float, log: list[str], *, rdma: float = 800.0) -> Hosts:
    return ran(row(2**30, gbit), backend="nccl", log=log, rdma=rdma)


@pytest.mark.parametrize(
    ("hosts", "link_gbit", "told"),
    [
        # Gloo is not expected to fill fast links, and small sizes say nothing of the link.
        (ran(row(2**30, 6)), 10, []),
        (ran(row(2**30, 0.4)), 10, ["comm-slow"]),
        (ran(row(4096, 0.01)), 10, []),
        (nccl(700, HEAD_LOG), 800, []),
        (nccl(240, HEAD_LOG), 800, ["comm-slow"]),
        (nccl(20, SOCKET_LOG), 25, ["comm-rdma-unused"] * 2),
        (nccl(20, SOCKET_LOG, rdma=0.0), 25, []),
        (nccl(700, INDIRECT_LOG), 800, ["comm-gdr"] * 2),
    ],
)
def test_a_rate_is_held_against_the_links(hosts: Hosts, link_gbit: float, told: list[str]) -> None:
    assert report(hosts)["runs"][0]["link_gbit"] == link_gbit
    assert ids(hosts) == told


def test_the_first_error_decides_and_the_others_follow() -> None:
    errors = {"node1": {"message": "Connection closed by peer", "at": 9.0}, "node2": {"message": "no device"}}
    [found] = findings(ran(row(2**20, 6), errors=errors))
    assert (found["id"], found["host"]) == ("comm-failed", "node2")
    assert "while gloo 4 KiB: no device" in found["what"]
    assert "Then node1: Connection closed by peer." in found["why"]
