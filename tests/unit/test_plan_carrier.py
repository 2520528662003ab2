"""What carries the weights: TCP, or RDMA over ports that the plan names for each host, or a refusal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from clusters import planned, with_hosts, with_settings
from headfirst.common.errors import InputError
from headfirst.control.cli.shown.plan import print_plan
from headfirst.control.deployment.hosts.probe import lacks_facts
from headfirst.control.deployment.running.artifacts import Artifacts
from headfirst.control.deployment.running.role_vars.weights import tools_vars
from headfirst.control.inventory.inventory import load
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.hardware.facts import NetworkFacts
from headfirst.decide.model import catalogue
from headfirst.decide.plan.types import Weights
from headfirst.decide.plan.weights import carrier
from recorded_hosts import facts

INVENTORY = """
[head]
node1 ansible_host=192.168.5.4
[workers]
node2 ansible_host=192.168.5.5
[all:vars]
gpus=8
gpu=A100-80G
nic=eth0
model=deepseek-ai/DeepSeek-R1
weights_carrier=rdma
"""
Made = Callable[..., Cluster]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Two recorded hosts of one shape, which were asked; `hosts` is what the inventory says of each."""

    def make(shape: str | None = None, hosts: dict[str, Any] | None = None, **settings: Any) -> Cluster:
        inventory = tmp_path / "cluster.ini"
        inventory.write_text(INVENTORY)
        cluster = with_settings(load([inventory]), **settings)
        known = None
        if shape:
            known = NetworkFacts.model_validate(
                facts(shape, Path(mkdtemp(dir=tmp_path)), peers=("10.255.0.2",))
            )
        return cluster.replaced(lambda host: replace(host, network=known, **(hosts or {})))

    return make


def weights(cluster: Cluster) -> Weights:
    checkpoint = catalogue.lookup("deepseek-ai/DeepSeek-R1")
    assert checkpoint
    return planned(cluster, checkpoint).services[0].weights


@pytest.mark.parametrize(
    ("shape", "ports"),
    [
        ("hgx-a100-roce", ["mlx5_1:1:3", "mlx5_2:1:3", "mlx5_3:1:3", "mlx5_4:1:3"]),
        ("hgx-a100-infiniband", ["mlx5_1:1:0", "mlx5_2:1:0", "mlx5_3:1:0", "mlx5_4:1:0"]),
        ("pcie-a100", ["mlx5_0:1:3"]),
    ],
)
def test_the_ports_are_those_of_the_ranks(made: Made, shape: str, ports: list[str]) -> None:
    planned_weights = weights(made(shape))
    assert planned_weights.carrier.kind == "rdma" and planned_weights.carrier.note == ""
    assert planned_weights.carrier.ports == {"node1": ports, "node2": ports}
    assert planned_weights.connections >= len(ports)


def test_the_inventory_names_them_without_asking_the_hosts(made: Made) -> None:
    cluster = made(hosts={"hca": "mlx5_0,mlx5_1:2", "ib_gid_index": 5})
    assert weights(cluster).carrier.ports["node2"] == ["mlx5_0:1:5", "mlx5_1:2:5"]
    assert not lacks_facts(cluster)
    one = made("hgx-a100-roce", hosts={"hca": "mlx5_3", "ib_gid_index": 5})
    assert weights(one).carrier.ports["node1"] == ["mlx5_3:1:5"]


def test_hosts_that_were_not_asked_are_asked(made: Made) -> None:
    silent = made(hosts={"hca": "mlx5_0"})
    assert "node1, node2 are not known yet" in weights(silent).carrier.note
    assert lacks_facts(silent) and not weights(silent).carrier.ports


def test_devices_that_the_role_rdma_still_makes_work_are_waited_for(made: Made) -> None:
    bare = made("cpu-only", hosts={"lacks": frozenset({"rdma"})})
    assert "not known yet" in weights(bare).carrier.note


@pytest.mark.parametrize(
    ("shape", "hosts", "settings", "what"),
    [
        ("cpu-only", {}, {}, "node1 has no active RDMA port"),
        ("hgx-a100-roce", {"hca": "none"}, {}, "node1 has hca=none"),
        ("hgx-a100-roce", {"hca": "mlx9_9"}, {}, "node1 has no active RDMA port of mlx9_9"),
        ("hgx-a100-roce", {}, {"weights_encrypt": True}, "exclude each other"),
    ],
)
def test_what_cannot_be_is_refused_with_the_line(
    made: Made, shape: str, hosts: dict[str, Any], settings: dict[str, Any], what: str
) -> None:
    with pytest.raises(InputError, match=what) as refusal:
        weights(made(shape, hosts, **settings))
    assert refusal.value.exit_code == 2 and refusal.value.hint
    assert str(refusal.value.where).endswith("cluster.ini:11")


def test_unequal_numbers_of_ports_are_refused(made: Made) -> None:
    cluster = made("hgx-a100-roce", {"hca": "mlx5_1"})
    head, worker = cluster.ranks
    with pytest.raises(InputError, match="node1 1, node2 2"):
        weights(with_hosts(cluster, [head, replace(worker, hca="mlx5_1,mlx5_2")]))


def test_one_host_alone_needs_no_carrier(made: Made) -> None:
    cluster = made("cpu-only")
    assert weights(with_hosts(cluster, cluster.ranks[:1])).carrier.kind == "tcp"


def test_one_host_alone_is_not_asked_for_its_network(made: Made) -> None:
    several = made()
    assert carrier.is_asked(several.services[0])
    assert not carrier.is_asked(with_hosts(several, several.ranks[:1]).services[0])
    assert not carrier.is_asked(with_settings(several, weights_carrier="tcp").services[0])


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Callable[[Cluster], str]:
    """What `deploy plan` prints, in one line."""

    def show(cluster: Cluster) -> str:
        checkpoint = catalogue.lookup("deepseek-ai/DeepSeek-R1")
        assert checkpoint
        print_plan(planned(cluster, checkpoint))
        return " ".join(capsys.readouterr().out.split())

    return show


def test_the_plan_shows_the_carrier_and_that_there_is_another(
    made: Made, shown: Callable[[Cluster], str]
) -> None:
    text = shown(made("pcie-a100"))
    assert "RDMA (unproven on RDMA hardware), else TCP" in text and "RDMA ports: mlx5_0:1:3" in text
    assert shown(made("pcie-a100", weights_carrier="tcp")).count("weights_carrier=rdma uses them") == 1
    for quiet in (
        made("cpu-only", weights_carrier="tcp"),
        made("pcie-a100", weights_carrier="tcp", weights_encrypt=True),
        made("pcie-a100", {"hca": "none"}, weights_carrier="tcp"),
        made(weights_carrier="tcp"),
    ):
        assert "weights_carrier" not in shown(quiet)


@pytest.mark.parametrize("carrier", ["tcp", "rdma"])
def test_the_tools_have_the_extra_only_where_it_is_used(made: Made, carrier: str) -> None:
    cluster = made("pcie-a100", weights_carrier=carrier)
    checkpoint = catalogue.lookup("deepseek-ai/DeepSeek-R1")
    assert checkpoint
    plan = planned(cluster, checkpoint)
    files = Artifacts(node_wheel=Path("wheel"), engines={}, webui=None)
    extras = tools_vars(cluster, plan, files)["node2"]["node_tools_extras"]
    assert ("rdma" in extras) == (carrier == "rdma")
