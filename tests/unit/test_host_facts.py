"""Facts of a compromised host are refused where they enter; the GPUs that a host reports are planned with."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from clusters import planned
from headfirst.common.errors import InputError
from headfirst.common.untrusted import UntrustedError
from headfirst.control.deployment.hosts.probe import lacks_facts, with_facts
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.hardware import facts as host_facts
from known_models import model
from recorded_hosts import SHAPES, facts

INVENTORY = """
[head]
node1 ansible_host=192.168.5.4
[all:vars]
model=deepseek-ai/DeepSeek-R1-Distill-Llama-70B
"""
TEMPLATE = "{{ lookup('pipe', 'touch /tmp/x') }}"
GIB = 1 << 30


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    found = facts("hgx-a100-roce", tmp_path_factory.mktemp("host"), peers=("192.168.5.5",))
    assert found["routes"]
    return found


@pytest.mark.parametrize("shape", sorted(path.name for path in SHAPES.iterdir() if path.is_dir()))
def test_recorded_hosts_pass(shape: str, tmp_path: Path) -> None:
    assert host_facts.read(facts(shape, tmp_path / shape), host="node1").nics


Change = Callable[[dict[str, Any]], Any]
BAD: dict[str, Change] = {
    "interface": lambda f: f["nics"][0].update(name=TEMPLATE),
    "interface with a space": lambda f: f["nics"][0].update(name="eth0 x"),
    "interface of 16": lambda f: f["nics"][0].update(name="e" * 16),
    "interface as an option": lambda f: f["nics"][0].update(name="-eth0"),
    "interface as a list": lambda f: f["nics"][0].update(name=["eth0"]),
    "kind": lambda f: f["nics"][0].update(kind=TEMPLATE),
    "address": lambda f: f["nics"][0].update(addresses=["192.168.5.4;id"]),
    "address of IPv6": lambda f: f["nics"][0].update(addresses=["::1"]),
    "address as a number": lambda f: f["nics"][0].update(addresses=[3232236804]),
    "addresses": lambda f: f["nics"][0].update(addresses="192.168.5.4"),
    "mtu as text": lambda f: f["nics"][0].update(mtu="1500"),
    "negative mtu": lambda f: f["nics"][0].update(mtu=-1),
    "mtu of a bool": lambda f: f["nics"][0].update(mtu=True),
    "speed": lambda f: f["nics"][0].update(mbit=10**30),
    "route's interface": lambda f: f["routes"]["192.168.5.5"].update(nic=TEMPLATE),
    "route's source": lambda f: f["routes"]["192.168.5.5"].update(source=TEMPLATE),
    "route's peer": lambda f: f["routes"].update({TEMPLATE: {"nic": "eth0", "source": ""}}),
    "device": lambda f: f["hcas"][0].update(name=TEMPLATE),
    "device with a comma": lambda f: f["hcas"][0].update(name="mlx5_0,mlx5_1"),
    "device's name": lambda f: f["hcas"][0].update(name="../../etc"),
    "distance": lambda f: f["hcas"][0].update(gpu_distances=["NEAR"]),
    "link": lambda f: f["hcas"][0]["ports"][0].update(link=TEMPLATE),
    "state": lambda f: f["hcas"][0]["ports"][0].update(state="ACTIVE\x1b[2J"),
    "speed of a port": lambda f: f["hcas"][0]["ports"][0].update(gbit=float("nan")),
    "infinite speed": lambda f: f["hcas"][0]["ports"][0].update(gbit=float("inf")),
    "speed as text": lambda f: f["hcas"][0]["ports"][0].update(gbit="200"),
    "gid's interface": lambda f: f["hcas"][0]["ports"][0]["gids"][0].update(nic=TEMPLATE),
    "gid's address": lambda f: f["hcas"][0]["ports"][0]["gids"][0].update(address=TEMPLATE),
    "gid's index": lambda f: f["hcas"][0]["ports"][0]["gids"][0].update(index="3"),
    "gid's type": lambda f: f["hcas"][0]["ports"][0]["gids"][0].update(type="{{ x }}"),
    "gpu": lambda f: f["gpus"][0].update(name=TEMPLATE),
    "gpu's memory": lambda f: f["gpus"][0].update(memory_bytes=-1),
    "gpu's huge memory": lambda f: f["gpus"][0].update(memory_bytes=10**5000),
    "gpu's capability": lambda f: f["gpus"][0].update(compute_capability="8.0\n"),
    "gpu's odd capability": lambda f: f["gpus"][0].update(compute_capability="9" * 500),
    "gpus": lambda f: f.update(gpus={"0": f["gpus"][0]}),
    "too many gpus": lambda f: f.update(gpus=f["gpus"] * 1000),
    "too many interfaces": lambda f: f.update(nics=f["nics"] * 10_000),
    "gpus on pci": lambda f: f.update(gpus_on_pci="x" * 8),
    "cores": lambda f: f.update(cores=10**9),
    "cores as text": lambda f: f.update(cores="64"),
    "memory": lambda f: f.update(memory_bytes=1.5),
    "nics missing": lambda f: f.pop("nics"),
    "cores missing": lambda f: f.pop("cores"),
    "hcas": lambda f: f.update(hcas=None),
}


@pytest.mark.parametrize("change", BAD.values(), ids=BAD.keys())
def test_a_bad_fact_is_refused_with_its_host(
    cluster: Cluster, recorded: dict[str, Any], change: Change
) -> None:
    hostile = copy.deepcopy(recorded)
    change(hostile)
    with pytest.raises(UntrustedError, match="the facts of the host are refused") as raised:
        with_facts(cluster.head, hostile)
    assert raised.value.where == "node1"
    assert len(str(raised.value)) < 600
    assert str(raised.value).isprintable()
    for no_object in ("text", [1], 5, True):
        with pytest.raises(UntrustedError) as raised:
            with_facts(cluster.head, no_object)
        assert raised.value.where == "node1"


def probed(cluster: Cluster, recorded: dict[str, Any], gpu: dict[str, Any]) -> Cluster:
    """The cluster whose only host reports eight of this GPU."""
    told = copy.deepcopy(recorded)
    told["gpus"] = [one | gpu for one in told["gpus"]]
    return cluster.replaced(lambda host: with_facts(host, told))


@pytest.mark.parametrize(
    ("name", "mib", "capability", "shown"),
    [
        ("NVIDIA H100 NVL", 95830, "9.0", "H100-NVL-94G"),
        ("NVIDIA GB200", 189471, "10.0", "GB200"),
        ("NVIDIA B300 SXM6 AC", 275040, "10.3", "B300-288G"),
        (
            "NVIDIA RTX PRO 6000 Blackwell Server Edition",
            97887,
            "12.0",
            "RTX-PRO-6000",
        ),
        ("NVIDIA X1 SXM9", 95830, "9.0", "X1 SXM9"),
        ("NVIDIA A100-SXM4-80GB", 81920, "8.0", "A100-80G"),
        ("NVIDIA H100 80GB HBM3", 40000, "", "H100-80G"),
    ],
)
def test_the_memory_that_the_host_reports_is_planned_with(
    cluster: Cluster, recorded: dict[str, Any], name: str, mib: int, capability: str, shown: str
) -> None:
    gpu = {"name": name, "memory_bytes": mib << 20, "compute_capability": capability}
    made = planned(probed(cluster, recorded, gpu), model("deepseek-ai/DeepSeek-R1-Distill-Llama-70B"))
    assert made.services[0].fit.gpu_memory_bytes == mib << 20
    assert shown in made.services[0].fit.reason


def test_the_smallest_of_several_counts(cluster: Cluster, recorded: dict[str, Any]) -> None:
    told = copy.deepcopy(recorded)
    told["gpus"][3]["memory_bytes"] = 70 * GIB
    head = with_facts(cluster.head, told)
    assert head.gpu_memory_bytes == 70 * GIB


@pytest.mark.parametrize(("capability", "convert"), [("8.0", True), ("9.0", False), ("12.0", False)])
def test_the_capability_that_the_host_reports_decides_over_fp8(
    cluster: Cluster, recorded: dict[str, Any], capability: str, convert: bool
) -> None:
    gpu = {"name": "NVIDIA X1", "memory_bytes": 400 * GIB, "compute_capability": capability}
    made = planned(probed(cluster, recorded, gpu), model("deepseek-ai/DeepSeek-R1"))
    assert made.services[0].convert_to_bf16 is convert


def test_an_unlisted_gpu_without_a_report_is_refused(cluster: Cluster, recorded: dict[str, Any]) -> None:
    gpu = {"name": "NVIDIA X1", "memory_bytes": 0, "compute_capability": ""}
    with pytest.raises(InputError, match="Unknown GPU 'NVIDIA X1'") as raised:
        planned(probed(cluster, recorded, gpu), model("Qwen/QwQ-32B"))
    assert raised.value.where == "node1"


@pytest.mark.parametrize(("gpu", "lacks"), [("X1", True), ("H100-80G", False)])
def test_a_host_whose_gpu_is_not_in_the_catalogue_is_asked(cluster: Cluster, gpu: str, lacks: bool) -> None:
    assert lacks_facts(cluster.replaced(lambda host: replace(host, gpus=8, gpu=gpu))) is lacks


def test_the_driver_reports_capabilities_by_bus(tmp_path: Path) -> None:
    table = "00000000:07:00.0, 8.0\n00000000:0A:00.0, 9.0\n[N/A], [N/A]\n"
    query = "nvidia-smi --query-gpu=pci.bus_id,compute_cap --format=csv,noheader"
    found = facts("hgx-a100-roce", tmp_path, changes={"commands": {query: table}})["gpus"]
    by_bus = {gpu["bus"]: gpu["compute_capability"] for gpu in found}
    assert by_bus["0000:07:00.0"] == "8.0"
    assert by_bus["0000:0a:00.0"] == "9.0"
    assert set(by_bus.values()) == {"8.0", "9.0", ""}
