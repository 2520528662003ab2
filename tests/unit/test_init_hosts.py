"""`deploy init --hosts` asks the hosts and writes what they report."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command import refused, succeeds
from headfirst.common.errors import InputError, NotReadyError
from headfirst.control.cli import init as init_verb
from headfirst.control.deployment.hosts.probe import lacks_facts, with_facts
from headfirst.control.deployment.prepare import prepare
from headfirst.control.deployment.verbs import init
from headfirst.control.deployment.verbs.init import describe
from headfirst.control.inventory import template
from headfirst.control.inventory.inventory import load
from headfirst.control.inventory.template import Answers, HostAddress, render_inventory
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.plan.host import network
from recorded_hosts import facts

# The address of the recorded host hgx-a100-roce; a second host of the shape has it replaced by its own.
RECORDED = "192.168.5.4"


def probed(
    cluster: Cluster, shapes: list[str], folder: Path, changed: Mapping[str, dict[str, Any]] | None = None
) -> Cluster:
    """The hosts as these shapes; `changed` has facts of some in place of the recorded ones."""
    by_name = {}
    for host, shape in zip(cluster.ranks, shapes, strict=True):
        peers = tuple(peer.address for peer in cluster.ranks if peer != host)
        recorded = facts(shape, folder / host.name, peers=peers)
        reported = json.dumps(recorded | (changed or {}).get(host.name, {}))
        by_name[host.name] = json.loads(reported.replace(RECORDED, host.address))
    return cluster.replaced(lambda host: with_facts(host, by_name[host.name]))


def answers(*hosts: HostAddress, model: str | None = None) -> Answers:
    return Answers(
        hosts=list(hosts),
        user=None,
        private_key=None,
        model=model,
        model_source="modelscope",
        weights_dir="/data",
    )


def ask_recorded(monkeypatch: pytest.MonkeyPatch, shapes: list[str], folder: Path) -> None:
    monkeypatch.setattr(init, "probe_hosts", lambda cluster, extra_vars: probed(cluster, shapes, folder))


def test_the_file_is_complete(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ask_recorded(monkeypatch, ["hgx-a100-roce"] * 2, tmp_path)
    path = tmp_path / "found.ini"
    printed = succeeds("init", path, "--hosts", "n1=192.168.5.4,n2=192.168.5.5")
    assert f"deploy models {path}" in printed
    text = path.read_text()
    assert "# 8 × NVIDIA A100-SXM4-80GB, 81920 MiB each; 1 cores; 2015 GiB of memory\nn1 " in text
    cluster = load([path], ["model=/any"])
    assert [(host.gpus, host.gpu, host.nic) for host in cluster.ranks] == [(8, "A100-80G", "eth0")] * 2
    assert [(host.hca, host.ib_gid_index) for host in cluster.ranks] == [
        ("=mlx5_1,mlx5_2,mlx5_3,mlx5_4", 3)
    ] * 2
    assert not lacks_facts(cluster), text
    succeeds("models", path)


def test_what_differs_stands_on_the_hosts_line(tmp_path: Path) -> None:
    path = tmp_path / "hosts.ini"
    hosts = [HostAddress("n1", RECORDED), HostAddress("n2", "192.168.5.5")]
    path.write_text(render_inventory(answers(*hosts), path))
    cluster = probed(load([path], ["model=/any"]), ["hgx-a100-roce", "hgx-h100-infiniband"], tmp_path)
    found = describe(cluster, hosts)
    assert found.common["gpus"] == "8"
    assert [host.variables["gpu"] for host in found.hosts] == ["A100-80G", "H100-80G"]
    assert "gpu" not in found.common


def test_hosts_without_gpus_compute_on_cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ask_recorded(monkeypatch, ["cpu-only"], tmp_path)
    path = tmp_path / "found.ini"
    succeeds("init", path, "--hosts", "n1=192.168.5.4")
    cluster = load([path], ["model=/any"])
    assert cluster.services[0].settings.engine_device == "cpu"
    assert "no NVIDIA GPU" in path.read_text()
    # Without another look at the host.
    assert prepare([path], ["model=Qwen/Qwen3-0.6B"], probe=False).plan.services[0].device == "cpu"


def test_a_gpu_that_a_flag_names_is_not_replaced_by_cores(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The driver is not installed yet."""
    ask_recorded(monkeypatch, ["cpu-only"], tmp_path)
    path = tmp_path / "found.ini"
    words = ["--hosts", "n1=192.168.5.4", "--gpu", "H100-80G"]
    succeeds("init", path, *words)
    cluster = load([path], ["model=/any"])
    assert (cluster.services[0].settings.engine_device, cluster.head.cpu_cores) == ("cuda", None)


def test_a_flag_wins_over_what_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ask_recorded(monkeypatch, ["hgx-a100-roce"] * 2, tmp_path)
    path = tmp_path / "found.ini"
    succeeds("init", path, "--hosts", "n1=192.168.5.4,n2=192.168.5.5", "--hca", "mlx5_9", "--gpus", "4")
    head = load([path], ["model=/any"]).head
    assert (head.hca, head.gpus) == ("mlx5_9", 4)


def test_a_host_that_does_not_answer_leaves_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def silent(cluster: Cluster, extra_vars: list[str]) -> Cluster:
        raise NotReadyError("n2 does not answer on SSH", where="n2")

    monkeypatch.setattr(init, "probe_hosts", silent)
    path = tmp_path / "found.ini"
    assert isinstance(refused("init", path, "--hosts", "192.0.2.1,192.0.2.2"), NotReadyError)
    assert not path.exists()


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This machine, as a recorded one with eight GPUs."""
    ask_recorded(monkeypatch, ["hgx-a100-roce"], tmp_path)
    monkeypatch.setattr(template, "this_machine", lambda: RECORDED)


@pytest.mark.parametrize("words", [[], ["--hosts", "localhost"], ["--hosts", "127.0.0.1"]])
def test_this_machine_is_read_and_written(here: None, tmp_path: Path, words: list[str]) -> None:
    path = tmp_path / "box.ini"
    succeeds("init", path, *words)
    assert f"\nnode1 ansible_host={RECORDED} ansible_connection=local\n" in path.read_text()
    head = load([path], ["model=/any"]).head
    assert (head.login.local, head.address, head.gpus, head.gpu) == (True, RECORDED, 8, "A100-80G")


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_proposes_this_machine(
    here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    typed = ["", "Qwen/Qwen3-32B"]

    def answer(question: str = "") -> str:
        asked.append(question)
        return typed.pop(0)

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("headfirst.control.cli.init.sys.stdin", _Terminal())
    monkeypatch.setattr("builtins.input", answer)
    init_verb.init(tmp_path / "box.ini")
    head = load([tmp_path / "box.ini"]).head
    assert head.login.local and not typed and len(asked) == 2


def test_this_machine_beside_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(template, "this_machine", lambda: RECORDED)
    path = tmp_path / "hosts.ini"
    words = ["--host", "mine=localhost", "--host", "192.168.5.5", "--user", "ops", "--gpus", "8"]
    succeeds("init", path, *words, "--gpu", "A100-80G")
    ranks = load([path], ["model=/any"]).ranks
    assert [(host.name, host.address, host.login.local) for host in ranks] == [
        ("mine", RECORDED, True),
        ("node2", "192.168.5.5", False),
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["--hosts", "none.invalid"],
        ["--host", "none.invalid", "--user", "ops", "--gpus", "8", "--gpu", "A100-80G"],
    ],
)
def test_no_error_names_a_temporary_file(tmp_path: Path, words: list[str]) -> None:
    path = tmp_path / "new" / "box.ini"
    error = refused("init", path, *words)
    assert isinstance(error, InputError)
    assert str(error.where).startswith(f"{path}:")
    assert tempfile.gettempdir() not in str(error).replace(str(tmp_path), "")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a=1.2.3.4,a=1.2.3.5", "two servers are called a"),
        (",", "names no server"),
        ("a b;c", "not a server's"),
    ],
)
def test_wrong_hosts_are_refused(tmp_path: Path, text: str, what: str) -> None:
    error = refused("init", tmp_path / "x.ini", "--hosts", text)
    assert isinstance(error, InputError)
    assert what in error.what


def test_names_of_hosts() -> None:
    assert HostAddress.parse("node01.example.org", 1, labelled=True).name == "node01"
    assert HostAddress.parse("192.0.2.7", 2, labelled=True).name == "node2"
    assert HostAddress.parse("gpu=192.0.2.7", 2, labelled=True).name == "gpu"


def test_an_unknown_gpu_keeps_its_name(tmp_path: Path) -> None:
    path = tmp_path / "hosts.ini"
    host = HostAddress("n1", RECORDED)
    path.write_text(render_inventory(answers(host), path))
    cluster = probed(load([path], ["model=/any"]), ["hgx-a100-roce"], tmp_path)
    for reported, written in {"NVIDIA Foo 9000 XL": '"Foo 9000 XL"', "Foo'; x": None}.items():
        named = cluster.replaced(lambda known, gpu=reported: replace(known, gpu=gpu))  # type: ignore[misc]
        assert describe(named, [host]).common.get("gpu") == written


GID = {"index": 3, "gid": "::", "type": "RoCE v2", "address": RECORDED, "nic": "eth1"}
DOWN = {"number": 1, "state": "DOWN", "physical": "Disabled", "gbit": 40.0, "link": "Ethernet", "gids": [GID]}
CARD = {"name": "mlx5_0", "firmware": "", "pci": "", "numa": -1, "gpu_distances": [], "ports": [DOWN]}
NO_CARD: dict[str, Any] = {"hcas": [], "hcas_on_pci": []}
NO_DRIVER = {"hcas": [], "hcas_on_pci": ["0000:07:00.0", "0000:0a:00.0"]}
ROCE = NO_CARD | {"roce_on_pci": ["0000:07:00.0"]}
UNPLUGGED = {"hcas": [CARD], "hcas_on_pci": ["0000:07:00.0"]}


@pytest.mark.parametrize(
    ("n1", "n2", "expected", "seen"),
    [
        (NO_CARD, NO_CARD, ("none", "none"), None),
        (NO_DRIVER, NO_DRIVER, (None, None), "RDMA cards without a driver"),
        (UNPLUGGED, UNPLUGGED, (None, None), "RDMA mlx5_0 DOWN"),
        (ROCE, ROCE, (None, None), "Ethernet cards for RoCE without an RDMA driver"),
        ({}, NO_DRIVER, (None, None), "RDMA cards without a driver"),
        ({}, UNPLUGGED, (None, None), "RDMA mlx5_0 DOWN"),
        ({}, NO_CARD, (None, "none"), None),
        (NO_CARD, NO_DRIVER, ("none", None), "RDMA cards without a driver"),
    ],
)
def test_rdma_is_kept_out_only_of_hosts_without_its_hardware(
    n1: dict[str, Any], n2: dict[str, Any], expected: tuple[str | None, ...], seen: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "hosts.ini"
    hosts = [HostAddress("n1", RECORDED), HostAddress("n2", "192.168.5.5")]
    path.write_text(render_inventory(answers(*hosts), path))
    cluster = load([path], ["model=/any"])
    found = describe(probed(cluster, ["hgx-a100-roce"] * 2, tmp_path, {"n1": n1, "n2": n2}), hosts)
    written = replace(answers(*found.hosts), common=found.common)
    path.write_text(text := render_inventory(written, path))
    cluster = load([path], ["model=/any"])
    assert tuple(host.hca for host in cluster.ranks) == expected
    comments = [line for line in text.splitlines() if line.startswith("# ") and "NVIDIA" in line]
    assert seen is None or seen in comments[1], comments
    # What up finds later decides: nothing that is written keeps RDMA out.
    later = probed(cluster, ["hgx-a100-roce"] * 2, tmp_path / "later")
    assert all(chosen.hca for chosen in network.choose(later.ranks, gpus=True)) is ("none" not in expected)
