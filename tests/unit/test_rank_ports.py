"""The ranks' ports are closed by their slice where the host can do that; else the plan states why not."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.headfirst.serving.plugins.module_utils.host_cgroups import OBSTACLES
from ansible_collections.headfirst.serving.plugins.plugin_utils import check_service_rules  # registers
from ansible_collections.headfirst.serving.plugins.plugin_utils.check_rules import RULES
from headfirst.common.errors import InputError
from headfirst.control.deployment.hosts import probe, running
from headfirst.control.deployment.lab_nodes import with_lab_facts
from headfirst.control.deployment.prepare import prepare
from headfirst.control.deployment.running.role_vars.hosts import check_vars, hardware_vars
from headfirst.decide.cluster.settings import ServiceSettings
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.engines import mooncake
from headfirst.decide.hardware.facts import CgroupObstacle, NetworkFacts
from headfirst.decide.plan.build import build
from headfirst.decide.plan.host.rank_ports import SLICE
from headfirst.decide.plan.types import Plan
from headfirst.decide.render import compose

ENGINE = ServiceSettings().engine_port
INVENTORY = """[head]
node1 ansible_host=192.0.2.11
[workers]
node2 ansible_host=192.0.2.12
{groups}
[all:vars]
gpus=8
gpu=A100-80G
nic=eth0
hca=none
model=deepseek-ai/DeepSeek-R1-Distill-Llama-70B
model_source=modelscope
{settings}
"""
LIMITS = ("closed_ports", "exposed_ports")
(RANK_PORTS,) = [rule for rule in RULES if rule.id == "rank-ports"]
assert check_service_rules
# Docker's bridge, and one of libvirt that both hosts have.
INNER = [("docker0", "bridge", "172.17.0.1"), ("virbr", "physical", "192.168.122.1")]


def second(address: str) -> str:
    return f"10.1.1.{address.rpartition('.')[2]}"


def network(*nics: tuple[str, str, str]) -> NetworkFacts:
    listed = [
        {"name": name, "kind": kind, "addresses": [address], "mtu": 1500, "mbit": 0}
        for name, kind, address in [*nics, *INNER]
    ]
    return NetworkFacts.model_validate({"nics": listed, "routes": {}, "hcas": []})


def planned(
    folder: Path, obstacle: CgroupObstacle | None, settings: str = "", groups: str = ""
) -> tuple[Cluster, Plan]:
    """The plan where each host has reported `obstacle`, and an address of a second network."""
    path = folder / "cluster.ini"
    path.write_text(INVENTORY.format(settings=settings, groups=groups))
    prepared = prepare([path], [], probe=False)
    found = prepared.cluster.replaced(
        lambda host: replace(
            host,
            cgroup_obstacle=obstacle,
            network=network(
                ("eth0", "physical", host.address), ("eth1", "bond", f"10.1.1.{host.address[-2:]}")
            ),
        )
    )
    return found, build(found, prepared.checkpoints)


def test_the_ranks_are_in_a_slice_that_only_the_peers_reach(tmp_path: Path) -> None:
    cluster, plan = planned(tmp_path, "")
    variables = hardware_vars(cluster, plan)
    for ports, other, served in zip(plan.rank_ports, ("12", "11"), ([f"{ENGINE}"], []), strict=True):
        tuned = variables[ports.host]
        assert (tuned["host_tuning_ranks_slice"], tuned["host_tuning_served_ports"]) == (SLICE, served)
        # NCCL may connect from any network; an address that several hosts have is no member's.
        assert tuned["host_tuning_peers"] == [f"192.0.2.{other}", f"10.1.1.{other}"]
    for node in plan.services[0].replicas[0].nodes:
        assert node.container.module_spec()["cgroup_parent"] == SLICE
        assert f"--cgroup-parent {SLICE}" in shlex.join(node.docker_run)
    assert f"all, but {ENGINE} (API) are closed to other hosts" in plan.rank_ports[0].reason
    assert plan.webui and plan.webui.container.cgroup_parent is None
    text = "".join(file.text for file in compose.files(plan, []).values())
    assert text.count(f"cgroup_parent: {SLICE}") == 2


def test_the_plan_states_what_monitoring_from_reaches(tmp_path: Path) -> None:
    _, plan = planned(tmp_path, "", "monitoring_from=192.0.2.40")
    assert plan.rank_ports[0].reason.endswith("; those with metrics are open to monitoring_from")


@pytest.mark.parametrize("obstacle", [None, "cgroup-v1", "nested", "cgroup-driver", "nftables", "no-rules"])
def test_a_host_that_cannot_keeps_the_list_and_the_containers(
    tmp_path: Path, obstacle: CgroupObstacle | None
) -> None:
    """Their fingerprints do not change, so nothing is started again."""
    cluster, plan = planned(tmp_path, obstacle)
    tuned = hardware_vars(cluster, plan)["node1"]
    assert (tuned["host_tuning_ranks_slice"], tuned["host_tuning_served_ports"]) == ("", [])
    assert tuned["host_tuning_peers"] == ["192.0.2.12"]
    assert tuned["host_tuning_rendezvous_ports"] == ["5000"]
    (node, _) = plan.services[0].replicas[0].nodes
    assert "cgroup_parent" not in node.container.module_spec()
    reason = plan.rank_ports[0].reason
    if obstacle is None:
        assert reason == (
            "ports of ranks: whether the host can close all of them to other hosts is not known. "
            "`deploy plan --probe` reads it"
        )
    elif obstacle == "no-rules":
        assert f": 5000, 32768-60999 stay open to everybody: {OBSTACLES[obstacle]}. Next: " in reason
    else:
        assert ": 5000 are closed to other hosts by number; 32768-60999 stay open to everybody: " in reason
        assert f"{OBSTACLES[obstacle]}. Next: " in reason


DIVIDED = "engine=sglang\nprefill_replicas=1\ndecode_replicas=1"
ON_ONE = f"{DIVIDED}\nprefill_gpus_per_replica=4\ndecode_gpus_per_replica=4"
SERVED = "engine_port=15500\nwebui_port=15600\nansible_port=16000"


@pytest.mark.parametrize(
    ("obstacle", "settings", "closed"),
    [
        # Replicas of one host too. People ask the router, and no replica; what else they reach stays open.
        ("nested", DIVIDED, [["5000", "7100", "30000", "15000-17000"]] * 2),
        ("cgroup-v1", f"{DIVIDED}\nkv_transfer=nixl", [["5000", "7100", "30000"]] * 2),
        (
            "cgroup-driver",
            f"{DIVIDED}\nengine_env=MC_MIN_PRC_PORT=20000 MC_MAX_PRC_PORT=20100",
            [["5000", "7100", "30000", "20000-20100"]] * 2,
        ),
        (
            "nftables",
            f"{DIVIDED}\n{SERVED}",
            [["5000", "7100", "15500", "15000-15499", "15501-15599", "15601-15999", "16001-17000"],
             ["5000", "7100", "15500", "15000-15499", "15501-15999", "16001-17000"]],
        ),
        ("", DIVIDED, [["5000", "7100", "30000"], ["5000", "7100", "30000"]]),
        (
            "nested",
            "engine_args=--hicache-storage-backend mooncake",
            [["5000", "15000-17000"], ["15000-17000"]],
        ),
    ],
)  # fmt: skip
def test_what_gives_kv_cache_away_is_closed_by_number(
    tmp_path: Path, obstacle: CgroupObstacle, settings: str, closed: list[list[str]]
) -> None:
    cluster, plan = planned(tmp_path, obstacle, settings)
    variables = hardware_vars(cluster, plan)
    found = [variables[host]["host_tuning_rendezvous_ports"] for host in ("node1", "node2")]
    assert [[port for port in ports if port != "29000"] for ports in found] == closed  # the router's
    if "replicas" in settings and not obstacle:
        assert [variables[host]["host_tuning_served_ports"] for host in ("node1", "node2")] == [[], []]
    # A host that had no rules before is not refused for them.
    assert variables["node2"]["host_tuning_firewall_optional"] == ("replicas" in settings and obstacle != "")
    alone = ["22000-29999"] if "replicas" in settings else []
    for ports in plan.rank_ports:
        assert ports.exposed == ([*alone, "32768-60999"] if obstacle else [])


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, {(15000, 17000)}),
        # Before 0.3.11 Mooncake does not read these names.
        ({"MC_MIN_RPC_PORT": "16990", "MC_MAX_RPC_PORT": "16999x"}, {(15000, 17000), (16990, 16999)}),
        ({"MC_MIN_PRC_PORT": "61500", "MC_MAX_PRC_PORT": "61501"}, {(61500, 61501)}),
        ({"MC_MIN_PRC_PORT": "33000", "MC_MAX_PRC_PORT": "33100"}, {(15000, 17000)}),
        ({"MC_MAX_PRC_PORT": "14000"}, {(15000, 17000)}),
        ({"MC_MIN_PRC_PORT": ""}, {(15000, 17000)}),
    ],
)
def test_the_range_of_mooncake(environment: dict[str, str], expected: set[tuple[int, int]]) -> None:
    """What the transfer engine itself did: 0.3.10 to 0.3.13 were started, without a GPU, over TCP."""
    spans = mooncake.ports(["--disaggregation-transfer-backend", "mooncake_tcp"], environment)
    assert {(span.start, span.stop - 1) for span in spans} == expected
    assert mooncake.ports(["--disaggregation-transfer-backend", "nixl"], environment) == []


def test_replicas_of_one_host_close_their_ports_too(tmp_path: Path) -> None:
    path = tmp_path / "cluster.ini"
    path.write_text(
        f"[head]\nnode1 ansible_host=192.0.2.11 gpus=8 gpu=H100-80G nic=eth0 hca=none\n[all:vars]\n"
        f"model=Qwen/Qwen3-32B\nmodel_source=modelscope\n{ON_ONE}\n"
    )
    prepared = prepare([path], [], probe=False)
    closed = hardware_vars(prepared.cluster, prepared.plan)["node1"]["host_tuning_rendezvous_ports"]
    assert {"7100", "15000-17000"} < set(closed), closed


@pytest.mark.parametrize(
    ("settings", "exposed"),
    [
        ("", ["32768-60999"]),
        ('host_tuning_closed_ports=["32768-60999"]', []),
        ('host_tuning_closed_ports=["32768-50000","50002-65535"]', ["50001"]),
        ("host_tuning_firewall=false", ["5000", "32768-60999"]),
    ],
)
def test_what_stays_open_is_named_by_plan_and_check(
    tmp_path: Path, settings: str, exposed: list[str]
) -> None:
    cluster, plan = planned(tmp_path, "cgroup-v1", settings)
    own = check_vars(cluster, plan)["node1"]
    assert plan.rank_ports[0].exposed == own["check_exposed_ports"] == exposed
    assert f"{', '.join(exposed) or 'none'} {'stay' if exposed else 'is'} open" in plan.rank_ports[0].reason
    limits = {"is_rank": True, **{name: own[f"check_{name}"] for name in LIMITS}}
    said = list(RANK_PORTS.look({"cgroup_obstacle": "cgroup-v1"}, limits))
    assert [", ".join(exposed) in text for text in said] == ([True] if exposed else [])
    said = list(RANK_PORTS.look({"cgroup_obstacle": "no-rules"}, limits))
    assert len(said) == 1 and "5000, " in said[0]
    assert list(RANK_PORTS.look({"cgroup_obstacle": ""}, limits)) == []


def test_ports_that_are_none_are_refused_with_their_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"host_tuning_closed_ports: .*'ssh'") as refused:
        planned(tmp_path, "", 'host_tuning_closed_ports=["ssh"]')
    assert str(refused.value.where).endswith("cluster.ini:13")


def test_behind_a_proxy_no_port_is_for_everybody(tmp_path: Path) -> None:
    _, plan = planned(tmp_path, "", "tls=local-ca")
    assert [ports.served for ports in plan.rank_ports] == [[], []]


def test_a_spare_that_may_become_the_head_serves(tmp_path: Path) -> None:
    _, plan = planned(tmp_path, "", "spare_takeover=true", "[spares]\nnode3 ansible_host=192.0.2.13\n")
    (spare,) = [ports for ports in plan.rank_ports if ports.host == "node3"]
    assert (spare.slice, spare.served) == (SLICE, [ENGINE])


def test_lab_nodes_are_not_probed_for_it(tmp_path: Path) -> None:
    cluster, _ = planned(tmp_path, None, "lab=true")
    assert {host.cgroup_obstacle for host in with_lab_facts(cluster).hosts} == {"nested"}


def test_hosts_are_asked_where_containers_depend_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the inventory has all else: `deploy up` asks, `deploy check` needs no plan of them."""

    def asked(cluster: Cluster, extra_vars: Sequence[str]) -> Cluster:
        return cluster.replaced(lambda host: replace(host, cgroup_obstacle=""))

    monkeypatch.setattr(probe, "probe_hosts", asked)
    monkeypatch.setattr(running, "specifications", lambda *_: {})  # no containers on the hosts
    planned(tmp_path, None)
    inventory = [tmp_path / "cluster.ini"]
    slices = {
        ports: {one.slice for one in prepare(inventory, [], probe=True, ports=ports).plan.rank_ports}
        for ports in (True, False)
    }
    assert slices == {True: {SLICE}, False: {None}}
