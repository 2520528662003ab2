"""What no line says: ranks that differ, are missing, or wait for ever."""

from __future__ import annotations

from typing import Any

import pytest
from diagnosing import ARGV, BEGIN, SERVES, START, container, diagnose, ended, node
from headfirst.decide.diagnose.types import Answer, Container, Node

WAITING = {5.0: BEGIN}
JOINED = {5.0: BEGIN, 9.0: "Init torch distributed ends. mem usage=0.3 GB"}
ODD = "RuntimeError: nobody knows me"


def rule(*nodes: Node) -> str | None:
    found = diagnose(nodes).decisive
    return found.rule if found else None


def rank_1(**changes: Any) -> Container:
    return container(1, WAITING, **changes)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ({"argv": (*ARGV, "--node-rank", "0")}, "same-node-rank"),
        ({"argv": (*ARGV, "--node-rank=0")}, "same-node-rank"),
        (
            {"argv": (*(word.replace("10.0.0.1", "10.0.0.2") for word in ARGV), "--node-rank", "1")},
            "wrong-head",
        ),
        ({"argv": (*ARGV, "--node-rank", "1", "--tp", "4")}, "arguments-differ"),
        ({"image_id": "sha256:" + "b" * 64}, "images-differ"),
        ({}, "hang-rendezvous"),
    ],
)
def test_a_rank_that_is_unlike_the_others(other: dict[str, Any], expected: str) -> None:
    assert rule(node(0, container(0, WAITING)), node(1, rank_1(**other))) == expected


def test_flags_of_rank_0_alone_are_no_difference() -> None:
    head = container(0, JOINED, argv=(*ARGV, "--node-rank", "0", "--host", "0.0.0.0", "--config", "/x.yaml"))
    assert rule(node(0, head), node(1, container(1, JOINED))) is None


def test_a_known_cause_goes_before_a_difference_and_an_unknown_error_does_not() -> None:
    other = node(1, rank_1(image_id="sha256:" + "b" * 64))
    memory = "torch.OutOfMemoryError: CUDA out of memory"
    assert rule(node(0, ended(0, {20.0: memory}, 21)), other) == "out-of-memory"
    assert rule(node(0, ended(0, {20.0: ODD}, 21)), other) == "images-differ"


def test_nccl_of_two_versions() -> None:
    head = container(0, {1.0: "NCCL version 2.21.5+cuda12.4", **WAITING})
    other = container(1, {1.0: "NCCL version 2.27.7+cuda12.9", **WAITING})
    assert rule(node(0, head), node(1, other)) == "nccl-differs"


def test_a_rank_that_is_not_there() -> None:
    found = diagnose([node(0, container(0, WAITING)), node(1, None)]).decisive
    assert found is not None
    assert (found.host, found.rule) == ("node2", "no-container")


def test_waiting_for_less_than_a_minute_is_no_hang() -> None:
    nodes = [node(rank, container(rank, WAITING), now=START + 40) for rank in (0, 1)]
    assert rule(*nodes) is None


def test_the_message_queue_after_nccl() -> None:
    log = {
        **WAITING,
        8.0: "node1:1:1 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 16 - Init COMPLETE",
    }
    assert rule(node(0, container(0, log)), node(1, container(1, log))) == "hang-after-nccl"


@pytest.mark.parametrize(("memory", "expected"), [("0", "hang-collective"), ("35", None)])
def test_gpus_that_only_spin(memory: str, expected: str | None) -> None:
    gpus = ({"utilization.gpu": "100", "utilization.memory": memory},) * 2
    assert rule(node(0, container(0, JOINED), gpus=gpus)) == expected


CAPTURE = "[2026-01-01 10:01:09 TP0] Capture cuda graph begin. This can take up to several minutes."
CAPTURED = "[2026-01-01 10:05:09 TP0] Capture cuda graph end. Time elapsed: 1334.00 s."


@pytest.mark.parametrize(
    ("flag", "log", "expected"),
    [
        ("--enable-torch-compile", {20.0: CAPTURE}, "compiling"),
        ("--enable-torch-compile", {20.0: CAPTURE, 60.0: CAPTURED}, None),
        ("--enable-torch-compile", {580.0: CAPTURE}, None),
        ("--enable-metrics", {20.0: CAPTURE}, None),
    ],
)
def test_compiling_that_takes_its_time(flag: str, log: dict[float, str], expected: str | None) -> None:
    head = container(0, {**JOINED, **log}, argv=(*ARGV, "--node-rank", "0", flag))
    assert rule(node(0, head)) == expected


@pytest.mark.parametrize(
    ("version", "cards", "count"),
    [
        ("2.21.5+cuda12.4", ("mlx5_0",), 1),
        ("2.21.5+cuda12.4", (), 0),
        ("2.27.7+cuda12.9", ("mlx5_0",), 0),
    ],
)
def test_an_nccl_without_peer_memory(version: str, cards: tuple[str, ...], count: int) -> None:
    log = {1.0: f"NCCL version {version}"}
    notes = diagnose([node(0, container(0, log), hcas=cards, health=SERVES)]).notes
    assert [note.rule for note in notes] == ["nccl-old"] * count


def test_up_but_generating_nothing() -> None:
    log = {**JOINED, 60.0: "The server is fired up and ready to roll!"}
    found = diagnose([node(0, container(0, log), health=Answer(0, "timed out"))]).decisive
    assert found is not None
    assert found.rule == "generate-hangs"
    assert "timed out" in found.lines[0]


@pytest.mark.parametrize(("cards", "count"), [(("mlx5_0", "mlx5_1"), 1), ((), 0)])
def test_tcp_where_there_are_rdma_cards(cards: tuple[str, ...], count: int) -> None:
    log = {9.0: "c:920:1145 [1] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [receive] via NET/Socket/0"}
    notes = diagnose([node(0, container(0, log), hcas=cards, health=SERVES)]).notes
    assert [note.rule for note in notes] == ["rdma-unused"] * count


def test_a_host_that_does_not_answer_is_told_beside_the_others() -> None:
    found = diagnose([node(0, ended(0, {20.0: ODD}, 21)), node(1, None, problem="no route")])
    assert found.decisive is not None
    assert found.decisive.rule == "unknown-error"
    assert [state.state for state in found.nodes] == ["exited (1)", "unreachable"]
