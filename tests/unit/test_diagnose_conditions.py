"""What no line says: ranks that differ, are missing, or wait for ever."""

from __future__ import annotations

from typing import Any

from diagnosing import ARGV, BEGIN, SERVES, START, container, diagnose, ended, node
from headfirst.decide.diagnose.types import HttpAnswer, NodeFacts, RankContainer
from together import together

WAITING = {5.0: BEGIN}
JOINED = {5.0: BEGIN, 9.0: "Init torch distributed ends. mem usage=0.3 GB"}
ODD = "RuntimeError: nobody knows me"


def rank_1(**changes: Any) -> RankContainer:
    return container(1, WAITING, **changes)


CAPTURE = "[2026-01-01 10:01:09 TP0] Capture cuda graph begin. This can take up to several minutes."
CAPTURED = "[2026-01-01 10:05:09 TP0] Capture cuda graph end. Time elapsed: 1334.00 s."
MEMORY = "torch.OutOfMemoryError: CUDA out of memory"
QUEUE = "node1:1:1 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 16 - Init COMPLETE"


def beside(**changes: Any) -> list[NodeFacts]:
    """Rank 0, which waits, and a rank 1 that differs."""
    return [node(0, container(0, WAITING)), node(1, rank_1(**changes))]


def logs(*ranks: dict[float, str], **more: Any) -> list[NodeFacts]:
    return [node(rank, container(rank, {**WAITING, **lines}), **more) for rank, lines in enumerate(ranks)]


def spinning(memory: str) -> list[NodeFacts]:
    gpus = ({"utilization.gpu": "100", "utilization.memory": memory},) * 2
    return [node(0, container(0, JOINED), gpus=gpus)]


def capturing(flag: str, log: dict[float, str]) -> list[NodeFacts]:
    return [node(0, container(0, {**JOINED, **log}, argv=(*ARGV, "--node-rank", "0", flag)))]


OTHER_IMAGE = {"image_id": "sha256:" + "b" * 64}
OTHER_HEAD = (*(word.replace("10.0.0.1", "10.0.0.2") for word in ARGV), "--node-rank", "1")
OF_RANK_0 = (*ARGV, "--node-rank", "0", "--host", "0.0.0.0", "--config", "/x.yaml")


@together(
    ("nodes", "expected"),
    [
        (beside(argv=(*ARGV, "--node-rank", "0")), "same-node-rank"),
        (beside(argv=(*ARGV, "--node-rank=0")), "same-node-rank"),
        (beside(argv=OTHER_HEAD), "wrong-head"),
        (beside(argv=(*ARGV, "--node-rank", "1", "--tp", "4")), "arguments-differ"),
        (beside(**OTHER_IMAGE), "images-differ"),
        (beside(), "hang-rendezvous"),
        # Flags of rank 0 alone are no difference.
        ([node(0, container(0, JOINED, argv=OF_RANK_0)), node(1, container(1, JOINED))], None),
        # A known cause goes before a difference, and an unknown error does not.
        ([node(0, ended(0, {20.0: MEMORY}, 21)), *beside(**OTHER_IMAGE)[1:]], "out-of-memory"),
        ([node(0, ended(0, {20.0: ODD}, 21)), *beside(**OTHER_IMAGE)[1:]], "images-differ"),
        (logs({1.0: "NCCL version 2.21.5+cuda12.4"}, {1.0: "NCCL version 2.27.7+cuda12.9"}), "nccl-differs"),
        # Waiting for less than a minute is no hang.
        (logs({}, {}, now=START + 40), None),
        (logs({8.0: QUEUE}, {8.0: QUEUE}), "hang-after-nccl"),
        (spinning("0"), "hang-collective"),
        (spinning("35"), None),
        (capturing("--enable-torch-compile", {20.0: CAPTURE}), "compiling"),
        (capturing("--enable-torch-compile", {20.0: CAPTURE, 60.0: CAPTURED}), None),
        (capturing("--enable-torch-compile", {580.0: CAPTURE}), None),
        (capturing("--enable-metrics", {20.0: CAPTURE}), None),
    ],
)
def test_what_no_line_says(nodes: list[NodeFacts], expected: str | None) -> None:
    found = diagnose(nodes).decisive
    assert (found.rule if found else None) == expected


def test_a_rank_that_is_not_there() -> None:
    found = diagnose([node(0, container(0, WAITING)), node(1, None)]).decisive
    assert found is not None
    assert (found.host, found.rule) == ("node2", "no-container")
    # A host that does not answer is told beside the others.
    told = diagnose([node(0, ended(0, {20.0: ODD}, 21)), node(1, None, problem="no route")])
    assert told.decisive is not None
    assert told.decisive.rule == "unknown-error"
    assert [state.state for state in told.nodes] == ["exited (1)", "unreachable"]


SOCKETS = {9.0: "c:920:1145 [1] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [receive] via NET/Socket/0"}


@together(
    ("log", "cards", "expected"),
    [
        ({1.0: "NCCL version 2.21.5+cuda12.4"}, ("mlx5_0",), ["nccl-old"]),
        ({1.0: "NCCL version 2.21.5+cuda12.4"}, (), []),
        ({1.0: "NCCL version 2.27.7+cuda12.9"}, ("mlx5_0",), []),
        (SOCKETS, ("mlx5_0", "mlx5_1"), ["rdma-unused"]),
        (SOCKETS, (), []),
    ],
)
def test_what_a_service_that_works_is_told(
    log: dict[float, str], cards: tuple[str, ...], expected: list[str]
) -> None:
    notes = diagnose([node(0, container(0, log), hcas=cards, health=SERVES)]).notes
    assert [note.rule for note in notes] == expected


def test_up_but_generating_nothing() -> None:
    log = {**JOINED, 60.0: "The server is fired up and ready to roll!"}
    found = diagnose([node(0, container(0, log), health=HttpAnswer(0, "timed out"))]).decisive
    assert found is not None
    assert found.rule == "generate-hangs"
    assert "timed out" in found.lines[0]
