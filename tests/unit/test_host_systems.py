"""Systems and kernels of hosts, from what they answer over SSH."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from headfirst.common.errors import NotReadyError
from headfirst.common.untrusted import UntrustedError
from headfirst.control.bundle.systems import System
from headfirst.control.deployment.hosts import host_systems
from headfirst.control.inventory.inventory import load
from headfirst.control.live.ssh_access.ssh import CommandOutput
from headfirst.decide.cluster.login import HostAccess

INVENTORY = """\
[head]
node1 ansible_host=192.0.2.11 gpus=8 gpu=A100-80G
[workers]
node2 ansible_host=192.0.2.12 gpus=8 gpu=A100-80G
[all:vars]
model=deepseek-ai/DeepSeek-V3
"""
BARE = {
    "id": "ubuntu", "release": "24.04", "machine": "x86_64", "kernel": "6.8.0-50-generic",
    "driver": False, "headers": False,
}  # fmt: skip


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    path = tmp_path / "two.ini"
    path.write_text(INVENTORY)
    return path


def asked(inventory: Path, monkeypatch: pytest.MonkeyPatch, **answers: Any) -> host_systems.HostSystems:
    def answered(hosts: list[HostAccess], ask: object) -> dict[str, Any]:
        return {one.host: answers[one.host] for one in hosts}

    monkeypatch.setattr(host_systems, "try_each", answered)
    return host_systems.ask(load([inventory]), list(answers))


def test_kernels_are_those_of_hosts_that_build_a_driver(
    inventory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = asked(inventory, monkeypatch, node1=BARE, node2=BARE | {"driver": True, "kernel": "6.5"})
    assert found.systems == (System(id="ubuntu", release="24.04"),)
    assert found.kernels == ("6.8.0-50-generic",)
    assert dict(found.by_host)["node2"] == System(id="ubuntu", release="24.04")
    assert asked(inventory, monkeypatch, node1=BARE | {"headers": True}).kernels == ()
    # Another architecture is another system; a host that does not answer ends it.
    found = asked(inventory, monkeypatch, node1=BARE | {"machine": "aarch64"})
    assert [str(system) for system in found.systems] == ["ubuntu-24.04 (aarch64)"]
    with pytest.raises(NotReadyError, match="silent"):
        asked(inventory, monkeypatch, node1=BARE, node2=NotReadyError("silent"))


@pytest.mark.parametrize("change", [{"kernel": "6.8; reboot"}, {"id": "../x"}, {"release": 12}])
def test_answers_are_validated(
    inventory: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    with pytest.raises(UntrustedError) as caught:
        asked(inventory, monkeypatch, node1=BARE | change)
    assert caught.value.where == "node1"


@pytest.mark.parametrize("out", ["", "[]", "{}", '{"id": "debian"}'])
def test_an_answer_that_is_none_is_refused(
    inventory: Path, monkeypatch: pytest.MonkeyPatch, out: str
) -> None:
    class Connection:
        def __enter__(self) -> None: ...
        def __exit__(self, *error: object) -> None: ...

    monkeypatch.setattr(host_systems, "ssh", lambda access: Connection())
    monkeypatch.setattr(host_systems, "run", lambda connection, command: CommandOutput(0, out, ""))
    with pytest.raises(UntrustedError):
        host_systems.ask(load([inventory]), ["node1"])


def test_the_question_is_answered_by_this_machine() -> None:
    done = subprocess.run(["sh", "-c", host_systems._READ], capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout)) == set(BARE)
