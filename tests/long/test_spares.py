"""Spare, replaced, removed and added hosts on a lab of four: three ranks and a spare, the real engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from headfirst.control import demo
from readme_lab import SMALL, hello, on_node, own_lab, summary_of

pytestmark = pytest.mark.lab
INVENTORY = f"""\
[head]
node1 ansible_host=10.213.94.11

[workers]
node2 ansible_host=10.213.94.12
node3 ansible_host=10.213.94.13

[spares]
node4 ansible_host=10.213.94.14

[all:vars]
cluster_name=spares
lab_subnet=10.213.94.0/24
lab_memory=4g
model_source=demo
served_model_name=headfirst-demo
{SMALL}"""
RUNNING = "docker ps --filter name=headfirst-engine --format '{{.Names}}'"


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with own_lab(tmp_path_factory.mktemp("spares") / "spares.ini", INVENTORY) as path:
        yield path


def changed(*words: str, inventory: Path, options: list[str]) -> dict[str, Any]:
    """The summary of a run, after which the service answers."""
    found = summary_of(*words, inventory=inventory, options=options)
    key = json.loads(Path(found["credentials"]).read_text())["engine_api_key"]
    api = found["services"][0]["api"][0].removesuffix("/v1")
    assert hello(api, key) == demo.answers()["Hello!"]
    return found


def ranks(inventory: Path, *nodes: str) -> list[str]:
    """Those of the nodes that run a rank."""
    return [node for node in nodes if on_node(node, RUNNING, inventory)]


def test_a_spare_has_the_weights_and_the_image_and_runs_nothing(inventory: Path) -> None:
    changed("up", inventory=inventory, options=[])
    assert ranks(inventory, "node1", "node2", "node3", "node4") == ["node1", "node2", "node3"]
    assert "sglang-cpu" in on_node("node4", "docker images --format '{{.Repository}}'", inventory)
    served = "ls /var/lib/headfirst/models/*-bf16/*.safetensors | wc -l"
    assert on_node("node4", served, inventory) == on_node("node1", served, inventory) != "0"
    assert changed("up", inventory=inventory, options=[])["changed"] == 0


def test_a_spare_takes_the_place_of_a_worker(inventory: Path) -> None:
    changed("replace", inventory=inventory, options=["node3", "--with", "node4", "--keep"])
    assert ranks(inventory, "node1", "node2", "node3", "node4") == ["node1", "node2", "node4"]


def test_a_spare_takes_the_place_of_the_head(inventory: Path) -> None:
    changed("replace", inventory=inventory, options=["node1", "--with", "node3", "--keep"])
    assert ranks(inventory, "node1", "node2", "node3", "node4") == ["node2", "node3", "node4"]


def test_hosts_leave_and_come(inventory: Path) -> None:
    changed("remove", inventory=inventory, options=["node4"])
    assert "node4" not in inventory.read_text()
    assert ranks(inventory, "node1", "node2", "node3") == ["node2", "node3"]
    inventory.write_text(
        inventory.read_text().replace("[workers]\n", "[workers]\nnode4 ansible_host=10.213.94.14\n")
    )
    changed("up", inventory=inventory, options=[])
    assert ranks(inventory, "node2", "node3", "node4") == ["node2", "node3", "node4"]
