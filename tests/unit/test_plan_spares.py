"""A spare that takes over must be able to run the rank that it takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from clusters import catalogued, read
from headfirst.common.errors import InputError
from headfirst.control.deployment.hosts.probe import lacks_facts
from headfirst.decide.plan.types import Plan

INVENTORY = """
[head]
node1 ansible_host=192.0.2.1 {ranks}
[workers]
node2 ansible_host=192.0.2.2 {ranks}
[spares]
extra ansible_host=192.0.2.77 {spare}
[all:vars]
nic=eth0
hca=none
spare_takeover=true
model=deepseek-ai/DeepSeek-R1-Distill-Llama-70B
model_source=huggingface
"""
RANKS = "gpus=8 gpu=H100-80G"


def planned(folder: Path, spare: str, inventory: str = INVENTORY) -> Plan:
    return catalogued(read(folder, inventory.format(ranks=RANKS, spare=spare)))


def test_an_equal_spare_waits_for_each_rank(tmp_path: Path) -> None:
    (service,) = planned(tmp_path, RANKS).services
    assert [(one.spare, one.replaces) for one in service.standbys] == [("extra", 0), ("extra", 1)]


@pytest.mark.parametrize(("hosts", "spares"), [(2, 1), (2, 3), (3, 1), (3, 3)])
def test_any_two_generations_of_a_replica_share_a_host(tmp_path: Path, hosts: int, spares: int) -> None:
    """Else both run where the network is cut between them."""
    workers = [f"node{number} ansible_host=192.0.2.{number} {RANKS}" for number in range(3, hosts + 1)]
    more = [f"extra{number} ansible_host=192.0.2.{77 + number} {RANKS}" for number in range(1, spares)]
    lists = "\n".join([*workers, "[spares]", *more])
    settings = f"pipeline_parallel={hosts}\ntensor_parallel=8\n"
    (service,) = planned(tmp_path, RANKS, INVENTORY.replace("[spares]", lists) + settings).services
    generations = [service.replicas[0], *(one.replica for one in service.standbys)]
    sets = [{node.host for node in generation.nodes} for generation in generations]
    assert len(sets) > hosts and all(len(one) == hosts for one in sets)
    assert all(one & other for one in sets for other in sets)


@pytest.mark.parametrize(
    ("spare", "what"),
    [
        ("gpus=8 gpu=A100-40G", "the ranks have different GPUs: A100-40G, H100-80G"),
        ("gpus=4 gpu=H100-80G", "the ranks have different numbers of GPUs: extra 4, node2 8"),
        ("gpus=8 gpu=H100-80G gpu_memory=40g", "its GPUs have 40.0 GiB, but the plan needs 79.6 GiB"),
        ("gpu=H100-80G", "the GPUs of extra are not known"),
    ],
)
def test_a_spare_that_could_not_run_the_rank_is_refused(tmp_path: Path, spare: str, what: str) -> None:
    with pytest.raises(InputError) as caught:
        planned(tmp_path, spare)
    assert what in caught.value.what
    assert caught.value.where == "extra"
    assert caught.value.hint


def test_a_spare_that_may_take_over_is_probed_where_its_gpus_are_not_in_the_inventory(tmp_path: Path) -> None:
    assert lacks_facts(read(tmp_path, INVENTORY.format(ranks=RANKS, spare="")))
