"""`deploy replace` and `deploy remove` change the lines of two hosts, and nothing else of the inventory."""

from __future__ import annotations

from pathlib import Path

import pytest
from headfirst.common.errors import InputError
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.verbs.membership import removal, replacement
from headfirst.control.inventory.edit import with_spare, without
from headfirst.control.inventory.inventory import load

INVENTORY = """\
# Rented until March.
[head]
node1 ansible_host=192.0.2.11

[workers]
node2 ansible_host=192.0.2.12  # the upper rack
node3 ansible_host=192.0.2.13 nic=ens5

[spares]
node4 ansible_host=192.0.2.14 nic=ens6

[all:vars]
gpus=8
gpu=A100-80G
nic=eth0
hca=none
model=deepseek-ai/DeepSeek-R1-Distill-Qwen-32B
tensor_parallel=8
pipeline_parallel=3
"""


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.ini"
    path.write_text(INVENTORY)
    return path


def lines_of(text: str) -> list[str]:
    return text.splitlines()


def test_the_spare_has_the_place_and_the_variables_of_its_own_line(inventory: Path) -> None:
    after = with_spare(inventory, "node3", "node4", keep=False)
    expected = INVENTORY.replace("node3 ansible_host=192.0.2.13 nic=ens5", "@").replace(
        "node4 ansible_host=192.0.2.14 nic=ens6\n", ""
    )
    assert after == expected.replace("@", "node4 ansible_host=192.0.2.14 nic=ens6")


def test_the_host_that_is_kept_becomes_a_spare(inventory: Path) -> None:
    inventory.write_text(with_spare(inventory, "node1", "node4", keep=True))
    cluster = load([inventory])
    assert [host.name for host in cluster.ranks] == ["node4", "node2", "node3"]
    assert [host.name for host in cluster.spares] == ["node1"]


@pytest.mark.parametrize(("host", "gone"), [("node2", "node2 "), ("node4", "node4 ")])
def test_a_host_that_leaves_takes_its_line_with_it(inventory: Path, host: str, gone: str) -> None:
    after = without(inventory, host)
    assert [line for line in lines_of(INVENTORY) if not line.startswith(gone)] == lines_of(after)


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("node9", "node4", "no line of the inventory names node9"),
        ("node2", "node3", "node3 is not a spare"),
        ("node4", "node4", "node4 is not the host of a rank"),
    ],
)
def test_hosts_that_have_no_such_place_are_refused(inventory: Path, old: str, new: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        with_spare(inventory, old, new, keep=False)


def test_a_range_of_hosts_is_refused(inventory: Path) -> None:
    inventory.write_text(INVENTORY.replace("node3 ansible_host=192.0.2.13 nic=ens5", "10.0.0.[5:6]"))
    with pytest.raises(InputError, match="a range of hosts"):
        with_spare(inventory, "10.0.0.5", "node4", keep=False)


def test_a_host_with_the_chat_page_is_refused(inventory: Path) -> None:
    inventory.write_text(INVENTORY + "\n[webui]\nnode2\n")
    with pytest.raises(InputError, match=r"also in \[webui\]"):
        with_spare(inventory, "node2", "node4", keep=False)
    with_spare(inventory, "node2", "node4", keep=True)


def test_a_change_that_the_hosts_cannot_carry_is_refused_before_anything_is_written(inventory: Path) -> None:
    with pytest.raises(InputError):
        removal(RunOptions([inventory]), "node2")
    assert inventory.read_text() == INVENTORY
    assert [path.name for path in inventory.parent.iterdir()] == ["cluster.ini"]


def test_a_replacement_is_checked_and_shown_before_it_is_written(inventory: Path) -> None:
    change = replacement(RunOptions([inventory]), "node3", "node4", keep=False)
    assert inventory.read_text() == INVENTORY
    assert "-node3 ansible_host=192.0.2.13 nic=ens5" in change.diff
    assert "+node4 ansible_host=192.0.2.14 nic=ens6" in change.diff


def test_a_spare_that_runs_a_rank_is_refused(inventory: Path) -> None:
    inventory.write_text(INVENTORY + "\n[more:children]\nspares\n" + "[workers]\nnode4\n")
    with pytest.raises(InputError, match="node4 is a spare and runs a rank"):
        load([inventory])
