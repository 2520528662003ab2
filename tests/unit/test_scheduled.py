"""Hosts that a scheduler chooses run what the hosts of the inventory would run, but for their addresses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from headfirst.common import container_names as names
from headfirst.control.deployment.prepare import prepare
from headfirst.decide.containers.blanks import (
    ADDRESS,
    CONFIG_FILE,
    HEAD_ADDRESS,
    Text,
    blanks,
    filled,
    mark,
    parse,
)
from headfirst.decide.containers.spec import Container, docker_run
from headfirst.decide.plan.types import Plan, PlannedReplica, Scheduled

ROOT = Path(__file__).resolve().parents[2]
INVENTORIES = sorted(path.name for path in (ROOT / "inventories").glob("*.ini"))
TWO_NODES = "inventories/h100x2.ini"
# Every way in which engines start ranks on several nodes.
STARTS = [
    [],
    ["engine=vllm"],
    ["engine=vllm", "engine_runtime=ray", "engine_image=acme/vllm-ray:v0.33.0"],
    ["engine=vllm", "model=Qwen/Qwen3-235B-A22B", "engine_args='--data-parallel-size 2'"],
    ["engine=lmdeploy", "model=Qwen/Qwen3-235B-A22B"],
    ["engine=lmdeploy", "model=Qwen/Qwen3-235B-A22B", "engine_args='--backend turbomind'"],
    ["engine=lmdeploy", "engine_args='--dp 16 --ep 16'"],
]


def planned(inventory: str, *settings: str) -> Plan:
    return prepare([ROOT / inventory], settings, probe=False).plan


def assert_alike(scheduled: Scheduled, replica: PlannedReplica) -> None:
    """With the addresses of the inventory's hosts, each rank is that of the plan."""
    for rank, node in zip(scheduled.ranks, replica.nodes, strict=True):
        values = {
            HEAD_ADDRESS: replica.nodes[0].address,
            ADDRESS: node.address,
            CONFIG_FILE: names.engine_config(node.container.name),
        }
        assert [filled(word, values) for word in rank.command] == node.container.without_files().command
        environment = {name: filled(text, values) for name, text in rank.environment.items()}
        assert environment == node.container.environment
        assert rank.entrypoint == node.container.entrypoint


def texts(scheduled: Scheduled) -> list[Text]:
    return [text for rank in scheduled.ranks for text in (*rank.command, *rank.environment.values())]


@pytest.mark.parametrize("inventory", INVENTORIES)
def test_ranks_are_alike(inventory: str) -> None:
    for service in planned(f"inventories/{inventory}").services:
        for scheduled, replica in zip(service.scheduled, service.replicas, strict=True):
            assert_alike(scheduled, replica)
            addresses = [node.address for node in replica.nodes]
            assert not [text for text in texts(scheduled) if holds(text, addresses)]


@pytest.mark.parametrize("settings", STARTS, ids=" ".join)
def test_every_way_to_start_several_nodes(settings: list[str]) -> None:
    (service,) = planned(TWO_NODES, *settings).services
    (scheduled,), (replica,) = service.scheduled, service.replicas
    assert len(scheduled.ranks) == 2
    assert scheduled.gpus == 8
    assert_alike(scheduled, replica)
    assert not [text for text in texts(scheduled) if holds(text, [node.address for node in replica.nodes])]
    named = set().union(*(blanks(text) for text in texts(scheduled)))
    assert named == {HEAD_ADDRESS, ADDRESS, CONFIG_FILE}


def holds(text: Text, addresses: Sequence[str]) -> bool:
    pieces = [text] if isinstance(text, str) else [piece for piece in text if isinstance(piece, str)]
    return any(address in piece for piece in pieces for address in addresses)


def test_hosts_with_different_interfaces_name_none(tmp_path: Path) -> None:
    text = (ROOT / TWO_NODES).read_text().replace("nic=eth0\n", "")
    text = text.replace("ansible_host=192.168.5.4", "ansible_host=192.168.5.4 nic=eth0")
    path = tmp_path / "mixed.ini"
    path.write_text(text.replace("ansible_host=192.168.5.5", "ansible_host=192.168.5.5 nic=ens5"))
    (scheduled,) = prepare([path], [], probe=False).plan.services[0].scheduled
    assert scheduled.nic is None
    assert "eth0, ens5" in scheduled.notes[0]
    assert not any("NCCL_SOCKET_IFNAME" in rank.environment for rank in scheduled.ranks)


@pytest.mark.parametrize("text", ["", "plain", f"{mark('a')}:1", f"x={mark('a')}{mark('b')}", mark("a")])
def test_a_text_with_blanks_is_filled(text: str) -> None:
    values = {"a": "192.0.2.1", "b": "192.0.2.2"}
    expected = text.replace(mark("a"), "192.0.2.1").replace(mark("b"), "192.0.2.2")
    assert filled(parse(text), values) == expected


def test_a_blank_without_a_value_is_an_error() -> None:
    with pytest.raises(KeyError):
        filled(parse(mark("other")), {"a": "1"})


@pytest.mark.parametrize(
    ("gpus", "option"), [("all", "all"), ("device=0", "device=0"), ("device=0,1", '"device=0,1"')]
)
def test_several_devices_are_one_field_for_docker(gpus: str, option: str) -> None:
    line = docker_run(Container(name="a", image="b", gpus=gpus))
    assert line[line.index("--gpus") + 1] == option
