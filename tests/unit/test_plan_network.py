"""Interface, RDMA devices and GID that the plan chooses on recorded hosts, and what it says of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from clusters import nodes, planned, with_hosts, with_settings
from headfirst.common.errors import InputError
from headfirst.control.cli.shown.plan import print_plan
from headfirst.control.deployment.hosts.probe import lacks_facts
from headfirst.decide.cluster.types import Cluster, Host
from headfirst.decide.hardware.facts import NetworkFacts
from headfirst.decide.plan.host.network import choose
from known_models import model
from recorded_hosts import facts

Ranks = Callable[..., list[Host]]
# Two nodes whose inventory says nothing of their network.
INVENTORY = """
[head]
node1 ansible_host=192.168.5.4
[workers]
node2 ansible_host=192.168.5.5
[all:vars]
gpus=8
gpu=A100-80G
model=deepseek-ai/DeepSeek-R1
"""


def changed(made: Cluster, **said: Any) -> Cluster:
    """The inventory's hosts with more said of each."""
    return made.replaced(lambda host: replace(host, **said))


@pytest.fixture
def ranks(tmp_path: Path, cluster: Cluster) -> Ranks:
    def make(
        shape: str,
        address: str,
        *,
        first: Any = None,
        second: Any = None,
        peer: str = "10.255.0.2",
        **said: Any,
    ) -> list[Host]:
        hosts = changed(cluster, **said).ranks
        known = [
            NetworkFacts.model_validate(facts(shape, tmp_path / name, peers=(peer,), changes=changes))
            for name, changes in (("first", first), ("second", second))
        ]
        return [
            replace(hosts[0], address=address, network=known[0]),
            replace(hosts[1], address=peer, network=known[1]),
        ]

    return make


@pytest.mark.parametrize(
    ("shape", "address", "nic", "hca", "index", "reason"),
    [
        ("hgx-a100-roce", "192.168.5.4", "eth0", "=mlx5_1,mlx5_2,mlx5_3,mlx5_4", 3, "RoCE at 200 Gbit/s"),
        (
            "hgx-a100-infiniband",
            "192.168.5.4",
            "eth0",
            "=mlx5_1,mlx5_2,mlx5_3,mlx5_4",
            None,
            "InfiniBand at 200",
        ),
        (
            "hgx-h100-infiniband",
            "10.0.8.11",
            "bond0",
            "=mlx5_0,mlx5_10,mlx5_11,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_9",
            None,
            "InfiniBand at 400 Gbit/s, nearest to the GPUs, the same on all hosts",
        ),
        (
            "h20-roce",
            "10.6.0.21",
            "bond0",
            "=mlx5_bond_1,mlx5_bond_2,mlx5_bond_3,mlx5_bond_4",
            3,
            "RoCE at 400",
        ),
        ("pcie-a100", "192.168.20.31", "ens5np0", "=mlx5_0", 3, "RoCE at 100 Gbit/s"),
        ("cpu-only", "10.0.0.1", "ens3", None, None, "no active RDMA port on node1, node2"),
    ],
)
def test_each_machine_gets_its_own(
    ranks: Ranks, shape: str, address: str, nic: str, hca: str | None, index: int | None, reason: str
) -> None:
    chosen = choose(ranks(shape, address), gpus=True)[0]
    assert (chosen.nic, chosen.hca, chosen.ib_gid_index, chosen.host_ip) == (nic, hca, index, address)
    assert chosen.reasons[0] == f"interface {nic}: it holds {address}"
    assert reason in " ".join(chosen.reasons)


def down(*names: str) -> dict[str, Any]:
    """Ports of the HGX A100 that are down."""
    places = {"mlx5_1": "00/0000:00:01.1/0000:01:00.0/0000:02:04.0/0000:0c:00.0"}
    return {
        "files": {
            f"/sys/devices/pci0000:{places[name]}/infiniband/{name}/ports/1/state": "1: DOWN"
            for name in names
        }
    }


def test_only_ports_that_all_hosts_have_are_used(ranks: Ranks) -> None:
    chosen = choose(ranks("hgx-a100-roce", "192.168.5.4", second=down("mlx5_1")), gpus=True)
    assert {one.hca for one in chosen} == {"=mlx5_2,mlx5_3,mlx5_4"}
    assert "the hosts differ" in " ".join(chosen[0].reasons)


def test_the_inventory_wins(ranks: Ranks) -> None:
    made = ranks("hgx-a100-roce", "192.168.5.4", nic="eth1", hca="mlx5_3", ib_gid_index=5)
    chosen = choose(made, gpus=True)[0]
    assert (chosen.nic, chosen.hca, chosen.ib_gid_index) == ("eth1", "=mlx5_3", 5)
    assert chosen.host_ip == "192.168.5.4"
    assert all(reason.endswith("set in the inventory") for reason in chosen.reasons)


def test_the_inventory_names_devices_or_keeps_rdma_out(ranks: Ranks) -> None:
    made = ranks("hgx-a100-roce", "192.168.5.4", hca="mlx5_1,mlx5_2")
    assert choose(made, gpus=True)[0].ib_gid_index == 3, "it is looked up"
    chosen = choose([replace(host, hca="none") for host in made], gpus=True)[0]
    assert (chosen.hca, chosen.ib_gid_index) == (None, None)


@pytest.mark.parametrize(("said", "used"), [("none", None), ("mlx5_1,mlx5_2", "=mlx5_1,mlx5_2")])
def test_devices_that_the_inventory_names_for_one_host_are_its_peers_too(
    ranks: Ranks, said: str, used: str | None
) -> None:
    first, second = ranks("hgx-a100-roce", "192.168.5.4")
    chosen = choose([first, replace(second, hca=said)], gpus=True)
    assert [one.hca for one in chosen] == [used, used]
    assert f"hca={said} is set for node2" in " ".join(chosen[0].reasons)


def test_different_devices_for_two_hosts_leave_the_third_without_a_rule(ranks: Ranks) -> None:
    first, second = ranks("hgx-a100-roce", "192.168.5.4")
    named = [replace(second, name=f"node{n}", hca=hca) for n, hca in ((2, "mlx5_1"), (3, "mlx5_2"))]
    with pytest.raises(InputError, match=r"mlx5_1 for node2, mlx5_2 for node3.*node1 has none"):
        choose([first, *named], gpus=True)
    same = [replace(host, hca="mlx5_2") for host in named]
    assert {one.hca for one in choose([first, *same], gpus=True)} == {"=mlx5_2"}


@pytest.mark.parametrize(
    ("first", "second", "what"),
    [
        ("mlx5_1", "none", "hca=none is set for node2, and hca=mlx5_1 for node1"),
        (None, "mlx5_77", "node1 has no active RDMA port that hca=mlx5_77 of node2 selects"),
    ],
)
def test_stated_devices_that_cannot_work_together_are_refused(
    ranks: Ranks, first: str | None, second: str, what: str
) -> None:
    hosts = ranks("hgx-a100-roce", "192.168.5.4")
    stated = [replace(host, hca=hca) for host, hca in zip(hosts, (first, second), strict=True)]
    with pytest.raises(InputError, match=what) as caught:
        choose(stated, gpus=True)
    assert caught.value.hint


def test_behind_address_translation_the_route_decides(ranks: Ranks) -> None:
    made = ranks("hgx-a100-roce", "203.0.113.4", peer="192.168.5.5")
    chosen = choose(made, gpus=True)[0]
    assert (chosen.nic, chosen.host_ip) == ("eth0", "192.168.5.4")
    assert "none holds 203.0.113.4" in chosen.reasons[0]


def roce_v1(index: int) -> dict[str, Any]:
    port = "/sys/devices/pci0000:4a/0000:4a:02.0/0000:4b:00.0/infiniband/mlx5_0/ports/1"
    return {"files": {f"{port}/gid_attrs/types/{index}": "IB/RoCE v1"}}


def test_a_port_without_a_roce_v2_address_is_no_rdma(ranks: Ranks) -> None:
    chosen = choose(ranks("pcie-a100", "192.168.20.31", first=roce_v1(3)), gpus=True)[0]
    assert chosen.hca is None
    assert "sockets" in " ".join(chosen.reasons)


@pytest.mark.parametrize(
    ("said", "device", "lacks"),
    [
        ({}, "cuda", True),
        ({"nic": "eth0"}, "cuda", True),
        ({"nic": "eth0", "hca": "mlx5_1"}, "cuda", True),
        ({"nic": "eth0", "hca": "none"}, "cuda", False),
        ({"nic": "eth0", "hca": "mlx5_1", "ib_gid_index": 3}, "cuda", False),
        ({"nic": "eth0"}, "cpu", True),
        ({"nic": "eth0", "cpu_cores": "0-3"}, "cpu", False),
    ],
)
def test_hosts_are_asked_for_what_the_inventory_omits(
    cluster: Cluster, said: dict[str, Any], device: str, lacks: bool
) -> None:
    assert lacks_facts(changed(with_settings(cluster, engine_device=device), **said)) is lacks


def test_the_ranks_get_it_and_the_person_reads_it(
    ranks: Ranks, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts = ranks("hgx-a100-roce", "192.168.5.4")
    hosts += [replace(hosts[1], name=f"node{n}") for n in (3, 4)]
    whole = planned(with_hosts(cluster, hosts), model())
    env = nodes(whole)[0].container.environment
    assert (env["NCCL_SOCKET_IFNAME"], env["GLOO_SOCKET_IFNAME"]) == ("=eth0", "eth0")
    assert (env["NCCL_IB_HCA"], env["NCCL_IB_GID_INDEX"]) == ("=mlx5_1,mlx5_2,mlx5_3,mlx5_4", "3")
    assert env["SGLANG_HOST_IP"] == "192.168.5.4"
    assert "/dev/infiniband" in nodes(whole)[0].container.devices
    print_plan(whole)
    out = capsys.readouterr().out
    assert "node1: interface eth0: it holds 192.168.5.4" in out
    assert "GID index 3: RoCE v2 with 10.1.0.4, 10.2.0.4, 10.3.0.4, 10.4.0.4" in out
