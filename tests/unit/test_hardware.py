"""Servers whose devices no driver knows yet: what the probe says of them, and what `deploy up` does first."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from clusters import planned, with_hosts
from headfirst.control.deployment.hosts.probe import with_facts
from headfirst.control.deployment.running import inventory
from headfirst.control.deployment.running.role_vars.hosts import check_vars, hardware_vars
from headfirst.control.inventory.inventory import load
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.plan.host import devices
from known_models import model
from recorded_hosts import facts

INVENTORY = """
[head]
node1 ansible_host=192.168.5.4
[workers]
node2 ansible_host=192.168.5.5
[all:vars]
model=deepseek-ai/DeepSeek-R1
"""
NO_GPU_DRIVER: dict[str, Any] = {
    "files": {"/proc/driver/nvidia/version": None, "/proc/modules": ""},
    "commands": {"nvidia-smi -q -x": ""},
}


def cluster(tmp_path: Path, changes: dict[str, Any] | None, more: str = "") -> Cluster:
    """Two recorded HGX A100 that were asked."""
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    path = folder / "cluster.ini"
    path.write_text(INVENTORY + more)
    made = load([path])
    return made.replaced(
        lambda host: with_facts(host, facts("hgx-a100-roce", folder / host.name, changes=changes))
    )


def without_rdma(made: Cluster) -> Cluster:
    """The same hosts as they are before the modules of the RDMA devices are loaded."""
    bare = [
        replace(host, lacks=host.lacks | {"rdma"}, network=host.network.model_copy(update={"hcas": ()}))
        for host in made.ranks
        if host.network
    ]
    return with_hosts(made, bare)


def groups(made: Cluster, tmp_path: Path) -> dict[str, list[str]]:
    """Hosts by group, as the playbooks will see them."""
    inventory.write(tmp_path / "plan.yml", made, hardware_vars(made, planned(made, model())), {})
    children = yaml.safe_load((tmp_path / "plan.yml").read_text())["all"]["children"]
    return {name: list(group["hosts"]) for name, group in children.items()}


def test_a_host_without_a_driver_has_gpus_of_an_unknown_kind(tmp_path: Path) -> None:
    made = cluster(tmp_path, NO_GPU_DRIVER)
    assert (made.head.gpus, made.head.gpu, made.head.lacks) == (8, None, {"nvidia_driver"})
    assert devices.comes_first(made)
    assert not devices.comes_first(cluster(tmp_path, NO_GPU_DRIVER, "drivers=keep\n"))


def test_drivers_can_wait_where_the_inventory_says_what_they_would(tmp_path: Path) -> None:
    assert not devices.comes_first(cluster(tmp_path, NO_GPU_DRIVER, "gpu=A100-80G\ngpus=8\n"))


def test_rdma_that_no_module_knows_comes_first_too(tmp_path: Path) -> None:
    made = without_rdma(cluster(tmp_path, None))
    assert devices.comes_first(made)
    assert not devices.comes_first(with_hosts(made, made.ranks[:1]))
    assert not devices.comes_first(without_rdma(cluster(tmp_path, None, "hca=none\n")))


def test_a_host_with_its_drivers_lacks_nothing(tmp_path: Path) -> None:
    made = cluster(tmp_path, None)
    assert made.head.lacks == frozenset()
    assert not devices.comes_first(made)


@pytest.mark.parametrize(
    ("more", "gpu", "rdma"),
    [
        ("", ["node1", "node2"], ["node1", "node2"]),
        ("hca=none\n", ["node1", "node2"], []),
        ("drivers=keep\n", [], []),
        ("engine_device=cpu\n", [], []),
    ],
)
def test_roles_for_devices_go_to_the_hosts_that_have_them(
    tmp_path: Path, more: str, gpu: list[str], rdma: list[str]
) -> None:
    found = groups(cluster(tmp_path, None, more), tmp_path)
    assert (found["headfirst_gpu"], found["headfirst_rdma"]) == (gpu, rdma)


def test_a_plan_can_be_made_before_the_driver_so_that_the_check_can_run(tmp_path: Path) -> None:
    made = cluster(tmp_path, NO_GPU_DRIVER)
    plan = planned(made, model())
    assert plan.services[0].fit.fits is None
    asked = check_vars(made, plan)["node2"]
    assert asked["check_roles_to_come"] == [
        "host_tuning",
        "nvidia_driver",
        "rdma",
        "nvidia_container_toolkit",
    ]
    assert asked["check_gpus"] == 8


@pytest.mark.parametrize(
    ("written", "convert", "memory"),
    [
        ("gpu=H199 gpu_memory=94g gpu_capability=9.0", False, 94 << 30),
        ("gpu=A99 gpu_memory=80g gpu_capability=8.0", True, 80 << 30),
        ("gpu=X1 gpu_memory=80g", False, 80 << 30),  # nothing is known: nothing is converted
        ("gpu_memory=80g", False, 80 << 30),
        ("gpu=H100-80G gpu_memory=79g", False, 79 << 30),
    ],
)
def test_a_plan_without_ssh_for_any_gpu(tmp_path: Path, written: str, convert: bool, memory: int) -> None:
    path = tmp_path / "any.ini"
    path.write_text(INVENTORY + "gpus=8\n" + written.replace(" ", "\n") + "\n")
    [service] = planned(load([path]), model()).services
    assert service.convert_to_bf16 is convert
    assert service.fit.gpu_memory_bytes == memory


def test_the_inventory_wins_over_what_the_host_reports(tmp_path: Path) -> None:
    for driver in (None, NO_GPU_DRIVER):
        made = cluster(tmp_path, driver, "gpu_memory=64g\ngpu_capability=9.0\n")
        assert (made.head.gpu_memory_bytes, made.head.gpu_capability) == (64 << 30, (9, 0))
    made = cluster(tmp_path, None, "")
    assert (made.head.gpu_memory_bytes, made.head.gpu_capability) == (81920 << 20, None)
    made = cluster(tmp_path, NO_GPU_DRIVER, "")
    assert (made.head.gpu_memory_bytes, made.head.gpu_capability) == (None, None)
