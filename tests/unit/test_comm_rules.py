"""What the ranks' meeting and their all-reduces tell, and what of it is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


def test_a_stranger_on_an_open_port_is_no_proof() -> None:
    [found] = findings(met(node2_node1_5000="stranger"))
    assert "something else answers" in found["what"]


def test_a_high_port_that_is_in_use_is_passed_over() -> None:
    hosts = met(node2_node1_40001="refused")
    hosts["node1"]["reach"]["listening"]["40001"] = "held"
    assert not findings(hosts)
    assert report(hosts)["port"] == HIGH[1]


def test_no_port_at_all_is_said() -> None:
    hosts = met()
    hosts["node1"]["reach"]["listening"] = dict.fromkeys(map(str, HIGH), "held") | {"5000": "open"}
    assert ids(hosts) == ["comm-ports"]


def test_gloo_is_not_expected_to_fill_fast_links() -> None:
    assert report(ran(row(2**30, 6)))["runs"][0]["link_gbit"] == 10
    assert not ids(ran(row(2**30, 6)))
    assert ids(ran(row(2**30, 0.4))) == ["comm-slow"]


def test_small_sizes_say_nothing_of_the_link() -> None:
    assert not ids(ran(row(4096, 0.01)))


def test_wrong_sums_are_an_error() -> None:
    [found] = findings(ran(row(2**20, 6, wrong=3)))
    assert (found["id"], found["severity"]) == ("comm-sums", "error")
    assert "3 of 262144 sums" in found["what"]


def test_the_first_error_decides_and_the_others_follow() -> None:
    errors = {"node1": {"message": "Connection closed by peer", "at": 9.0}, "node2": {"message": "no device"}}
    [found] = findings(ran(row(2**20, 6), errors=errors))
    assert (found["id"], found["host"]) == ("comm-failed", "node2")
    assert "while gloo 4 KiB: no device" in found["what"]
    assert "Then node1: Connection closed by peer." in found["why"]


def test_large_messages_that_never_come_point_to_the_mtu() -> None:
    [found] = findings(ran(row(512, 0.001), errors={"node1": {"message": "timed out"}}))
    assert "MTU" in found["fix"]


def test_a_container_that_did_not_start() -> None:
    hosts = ran(row(2**20, 6))
    hosts["node2"]["run"] = {"msg": "all-reduce ended with 125: could not select device driver"}
    [found] = findings(hosts)
    assert found["host"] == "node2"
    assert "could not select device driver" in found["what"]


def test_nccl_over_rdma_is_held_against_the_rdma_links() -> None:
    hosts = ran(row(2**30, 700), backend="nccl", log=HEAD_LOG, rdma=800.0)
    assert report(hosts)["runs"][0]["link_gbit"] == 800
    assert not ids(hosts)
    assert ids(ran(row(2**30, 240), backend="nccl", log=HEAD_LOG, rdma=800.0)) == ["comm-slow"]


def test_rdma_that_is_not_used() -> None:
    hosts = ran(row(2**30, 20), backend="nccl", log=SOCKET_LOG, rdma=800.0)
    assert report(hosts)["runs"][0]["link_gbit"] == 25
    assert ids(hosts) == ["comm-rdma-unused"] * 2
    assert not ids(ran(row(2**30, 20), backend="nccl", log=SOCKET_LOG))


def test_rdma_without_gpu_direct() -> None:
    assert ids(ran(row(2**30, 700), backend="nccl", log=INDIRECT_LOG, rdma=800.0)) == ["comm-gdr"] * 2
