"""`deploy rollback`: one named version on all replicas of each service, from what the hosts have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from headfirst.common.errors import InputError
from headfirst.common.untrusted import UntrustedError
from headfirst.control.cli.up import print_rollback
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.running.phases import Phase
from headfirst.control.deployment.verbs import rollback as rolling
from headfirst.control.deployment.verbs.rollback import previous
from headfirst.control.run.reporters.reporter import QuietReporter
from headfirst.control.run.result import RunResult
from headfirst.decide.cluster.types import Cluster

INVENTORY = """\
[chat]
node1 ansible_host=192.0.2.1
node2 ansible_host=192.0.2.2
[embed]
node3 ansible_host=192.0.2.3
[services:children]
chat
embed
[chat:vars]
model=Qwen/Qwen2.5-7B-Instruct
replicas=2
[embed:vars]
model=BAAI/bge-m3
[all:vars]
gpus=8
gpu=A100-80G
nic=eth0
hca=none
"""
CHAT = ("headfirst-engine-chat", "headfirst-engine-chat-1")
G1, G2, G3 = ("1" * 12, "2" * 12, "3" * 12)
Stats = dict[str, list[dict[str, Any]]]


def state(replica: str, current: str, **served: float) -> dict[str, Any]:
    """What a host has of a replica of one rank: version v1 is generation 111111111111."""
    generations = {
        version[1:] * 12: {
            "worked_at": at,
            "rank": 0,
            "ranks": 1,
            "container": replica,
            "start_seconds": 0,
            "versions": {version: {"planned_at": float(version[1:]), "served_at": at}},
        }
        for version, at in served.items()
    }
    seen = {"current": {"generation": current, "running": True, "rank": 0}, "generations": generations}
    return {"replica": replica, "host": "", "rank": 0, "seen": seen}


# `up` to v3 was killed after the first replica of chat; embed has had one version only.
INTERRUPTED: Stats = {
    "node1": [state(CHAT[0], G3, v2=2.0, v3=3.0)],
    "node2": [state(CHAT[1], G2, v1=1.0, v2=2.0)],
    "node3": [state("headfirst-engine-embed", G1, v1=1.0)],
}


class Runs:
    """Takes the place of Ansible: the hosts publish `stats`, and what would run is kept."""

    def __init__(self, cluster: Cluster, stats: Stats, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stats, self.phases = stats, list[Phase]()
        monkeypatch.setattr(rolling, "load", lambda *_: cluster)
        monkeypatch.setattr(rolling, "run_lock", self.lock)
        monkeypatch.setattr(rolling, "run_phases", self.run)

    @contextmanager
    def lock(self, *_: object) -> Iterator[None]:
        yield None

    def run(
        self, phases: list[Phase], _: RunOptions, cluster: Cluster, *__: object, **___: object
    ) -> RunResult:
        stats: dict[str, Any] = {}
        for phase in phases:
            assert cluster.limit == set(phase.variables)  # not the hosts of other services
            if phase.playbook == "versions.yml":
                stats |= {host: self.stats[host] for host in phase.variables}
            else:
                self.phases.append(phase)
        return RunResult(True, False, {}, [], [], [], [], 1.0, Path("log"), stats=stats)


def roll_back(cluster: Cluster, service: str | None = None) -> rolling.Rollback:
    return rolling.rollback(RunOptions(cluster.inventories, service=service), QuietReporter())


def test_all_replicas_return_to_one_version_after_an_interrupted_change(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(cluster, INTERRUPTED, monkeypatch)
    found = roll_back(cluster, "chat")
    assert (found.versions["chat"] or pytest.fail()).name == "v2"
    assert [phase.playbook for phase in runs.phases] == ["rollback.yml"] * 2
    for phase in runs.phases:
        for variables in phase.variables.values():
            assert (variables["engine_generation"], variables["engine_version"]) == (G2, "v2")
            assert variables["engine_replicas"] == 2


def test_a_service_without_another_version_is_left_alone(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = Runs(cluster, INTERRUPTED, monkeypatch)
    found = roll_back(cluster)
    assert {name: bool(version) for name, version in found.versions.items()} == {"chat": True, "embed": False}
    assert {host for phase in runs.phases for host in phase.variables} == {"node1", "node2"}
    print_rollback(found, Path("cluster.ini"), as_json=False)
    printed = capsys.readouterr().out
    assert "chat: version v2, which last started at 1970-01-01T00:00:02" in printed
    assert "embed: unchanged" in printed
    print_rollback(found, Path("cluster.ini"), as_json=True)
    assert json.loads(capsys.readouterr().out)["versions"] == {"chat": "v2", "embed": None}


def test_nothing_is_changed_where_no_service_has_another_version(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(cluster, INTERRUPTED, monkeypatch)
    with pytest.raises(InputError, match="no version to return to"):
        roll_back(cluster, "embed")
    assert runs.phases == []


def test_one_of_several_replicas_is_refused(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    Runs(cluster, INTERRUPTED, monkeypatch)
    with pytest.raises(InputError, match="return to a version together"):
        roll_back(cluster, "chat/1")


def test_a_host_that_publishes_less_has_no_version(cluster: Cluster) -> None:
    chat = cluster.service("chat")
    assert previous(chat, {**INTERRUPTED, "node2": []}) is None
    assert previous(chat, {"node1": INTERRUPTED["node1"]}) is None


@pytest.mark.parametrize("right", [G2, "v2"])
@pytest.mark.parametrize("name", ["{{ lookup('pipe', 'id') }}", "../g1", "g" * 65, ""])
def test_a_name_that_could_be_a_template_is_refused(cluster: Cluster, right: str, name: str) -> None:
    bad = json.loads(json.dumps(INTERRUPTED["node1"]).replace(json.dumps(right), json.dumps(name)))
    with pytest.raises(UntrustedError, match="its generations"):
        previous(cluster.service("chat"), {**INTERRUPTED, "node1": bad})
