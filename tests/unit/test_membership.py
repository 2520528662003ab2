"""`deploy replace` and `deploy remove`: what they take, and when they leave the inventory as it is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from headfirst.common.errors import InputError, NotReadyError, UnreachableError
from headfirst.control.deployment.hosts import probe, running
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.verbs import membership
from headfirst.control.live.ssh_access import explain
from headfirst.control.run.reporters.reporter import QuietReporter
from headfirst.decide.cluster.login import HostAccess
from headfirst.decide.cluster.types import Cluster

INVENTORY = """\
[head]
node1 ansible_host=192.0.2.11
[workers]
node2 ansible_host=192.0.2.12
[spares]
node3 ansible_host=192.0.2.13
[all:vars]
nic=eth0
hca=none
model=deepseek-ai/DeepSeek-R1-Distill-Qwen-32B
tensor_parallel=8
pipeline_parallel=2
"""


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.ini"
    path.write_text(INVENTORY)
    return path


def test_an_inventory_without_gpus_is_taken_as_up_takes_it(
    inventory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def probed(cluster: Cluster, *_: object, **__: object) -> Cluster:
        return cluster.replaced(lambda host: replace(host, gpus=8, gpu="A100-80G"))

    monkeypatch.setattr(probe, "probe_hosts", probed)
    monkeypatch.setattr(running, "specifications", lambda *_: {})  # no containers on the hosts
    change = membership.replacement(RunOptions([inventory]), "node2", "node3", keep=False)
    assert "-node2 ansible_host=192.0.2.12" in change.diff


class Verbs:
    """The parts of a change: `stops` is how stopping the host that leaves ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.locked: list[frozenset[str] | None] = []
        self.stops: Exception | None = None
        self.busy: Exception | None = None
        self.lost: Exception | None = None
        self.brought_up = False
        monkeypatch.setattr(membership, "run_lock", self.lock)
        monkeypatch.setattr(membership, "target_of", lambda _, options: options)
        monkeypatch.setattr(membership, "down", self.down)
        monkeypatch.setattr(membership, "up", self.up)

    @contextmanager
    def lock(self, cluster: Cluster, *_: object) -> Iterator[Verbs]:
        self.locked.append(cluster.limit)
        if self.busy:
            raise self.busy
        yield self

    def confirm(self) -> None:
        if self.lost:
            raise self.lost

    def down(self, *_: object, **__: object) -> None:
        if self.stops:
            raise self.stops

    def up(self, *_: object) -> Any:
        self.brought_up = True


def carry_out(inventory: Path) -> None:
    options = RunOptions([inventory])
    after = INVENTORY.replace("node2 ansible_host=192.0.2.12\n", "")
    membership.carry_out(
        membership.Change(inventory, INVENTORY, after, "node2", "remove"), options, QuietReporter()
    )


BUSY = NotReadyError("another run changes this host", where="node2")


@pytest.mark.parametrize("where", ["stops", "busy", "lost"])
def test_a_lock_that_another_run_holds_leaves_the_inventory(
    inventory: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    verbs = Verbs(monkeypatch)
    setattr(verbs, where, BUSY)
    with pytest.raises(NotReadyError, match="another run") as caught:
        carry_out(inventory)
    assert "The inventory was not changed" in str(caught.value.hint)
    assert inventory.read_text() == INVENTORY
    assert not verbs.brought_up


def test_a_host_that_does_not_answer_leaves(inventory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verbs = Verbs(monkeypatch)
    verbs.stops = UnreachableError("the host does not answer on SSH", where="node2")
    carry_out(inventory)
    assert "node2" not in inventory.read_text()
    assert (verbs.locked, verbs.brought_up) == ([{"node1", "node3"}], True)


def test_an_inventory_that_was_changed_meanwhile_stays(
    inventory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Verbs(monkeypatch)
    inventory.write_text(mine := INVENTORY + "served_model_name=mine\n")
    with pytest.raises(InputError, match="changed meanwhile"):
        carry_out(inventory)
    assert inventory.read_text() == mine


def test_a_file_that_cannot_stay_its_owners_is_not_written(
    inventory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    Verbs(monkeypatch)
    monkeypatch.setattr(os, "chown", refused)
    with pytest.raises(InputError, match="not as its owner's") as caught:
        carry_out(inventory)
    assert "The inventory was not changed" in str(caught.value.hint)
    assert ([*inventory.parent.iterdir()], inventory.read_text()) == ([inventory], INVENTORY)


@pytest.mark.parametrize(
    ("said", "unreachable"),
    [
        ("No route to host", True),
        ("nothing that a rule names", True),
        ("sudo: a password is required", False),
    ],
)
def test_a_host_that_answers_is_not_unreachable(said: str, unreachable: bool) -> None:
    access = HostAccess(host="node2", address="192.0.2.12")
    assert isinstance(explain.unreachable(access, said), UnreachableError) is unreachable
