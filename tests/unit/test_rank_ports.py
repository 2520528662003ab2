"""The ranks' ports are closed by their slice where the host can do that; else the plan states why not."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.headfirst.serving.plugins.module_utils.host_cgroups import OBSTACLES
from headfirst.control.deployment.hosts import probe
from headfirst.control.deployment.lab_nodes import with_lab_facts
from headfirst.control.deployment.prepare import prepare
from headfirst.control.deployment.running.role_vars.hosts import hardware_vars
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.hardware.facts import CgroupObstacle, NetworkFacts
from headfirst.decide.plan.build import build
from headfirst.decide.plan.host.rank_ports import SLICE
from headfirst.decide.plan.types import Plan
from headfirst.decide.render import compose

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
    for ports, other, served in zip(plan.rank_ports, ("12", "11"), (["30000"], []), strict=True):
        tuned = variables[ports.host]
        assert (tuned["host_tuning_ranks_slice"], tuned["host_tuning_served_ports"]) == (SLICE, served)
        # NCCL may connect from any network; an address that several hosts have is no member's.
        assert tuned["host_tuning_peers"] == [f"192.0.2.{other}", f"10.1.1.{other}"]
    for node in plan.services[0].replicas[0].nodes:
        assert node.container.module_spec()["cgroup_parent"] == SLICE
        assert f"--cgroup-parent {SLICE}" in shlex.join(node.docker_run)
    assert "all, but 30000 (API) are closed to other hosts" in plan.rank_ports[0].reason
    assert plan.webui and plan.webui.container.cgroup_parent is None
    text = "".join(file.text for file in compose.files(plan, []).values())
    assert text.count(f"cgroup_parent: {SLICE}") == 2


@pytest.mark.parametrize("obstacle", [None, "cgroup-v1", "nested", "cgroup-driver", "nftables"])
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
    assert reason.endswith(
        f"open to everybody: {OBSTACLES[obstacle]}"
        if obstacle
        else "--probe reads whether the host can close all of them to other hosts"
    )


def test_behind_a_proxy_no_port_is_for_everybody(tmp_path: Path) -> None:
    _, plan = planned(tmp_path, "", "tls=local-ca")
    assert [ports.served for ports in plan.rank_ports] == [[], []]


def test_a_spare_that_may_become_the_head_serves(tmp_path: Path) -> None:
    _, plan = planned(tmp_path, "", "spare_takeover=true", "[spares]\nnode3 ansible_host=192.0.2.13\n")
    (spare,) = [ports for ports in plan.rank_ports if ports.host == "node3"]
    assert (spare.slice, spare.served) == (SLICE, [30000])


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
    planned(tmp_path, None)
    inventory = [tmp_path / "cluster.ini"]
    slices = {
        ports: {one.slice for one in prepare(inventory, [], probe=True, ports=ports).plan.rank_ports}
        for ports in (True, False)
    }
    assert slices == {True: {SLICE}, False: {None}}
