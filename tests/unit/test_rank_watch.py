"""Which rank decides when an engine does not come up, and what a person reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.headfirst.serving.plugins.plugin_utils import failure_causes as causes
from ansible_collections.headfirst.serving.plugins.plugin_utils import rank_board, rank_watch
from ansible_collections.headfirst.serving.plugins.plugin_utils.engine_log_rules import Weight, profile
from ansible_collections.headfirst.serving.plugins.plugin_utils.failure_causes import Symptom
from ansible_collections.headfirst.serving.plugins.plugin_utils.rank_board import (
    ALIVE,
    DIED,
    ECHO,
    LATE,
    READY,
    RankBoard,
    RankVerdict,
)
from headfirst.decide import engines

LOG = profile(engines.get("sglang").log())
REPOSITORY = Path(__file__).parents[2]
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory"
LOST_PEER = "RuntimeError: Connection closed by peer"


def seen(**changes: Any) -> dict[str, Any]:
    """What container_watch returns for a rank that runs and is not ready."""
    running = {
        "exists": True,
        "running": True,
        "ready": False,
        "probe": "",
        "exit_code": 0,
        "finished_at": "",
        "oom_killed": False,
        "log": [],
    }
    return {**running, **changes}


def ended(log: list[str], exit_code: int = 1) -> dict[str, Any]:
    return seen(running=False, exit_code=exit_code, log=log)


@pytest.mark.parametrize(
    ("look", "gone_wrong", "kind", "words"),
    [
        (seen(ready=True, probe="Hello"), False, READY, "Hello"),
        (seen(log=["Load weight begin"]), False, ALIVE, "running"),
        (seen(exists=False, running=False), False, DIED, "no container"),
        (ended([OUT_OF_MEMORY]), False, DIED, "out of memory (it ended with exit code 1)"),
        (ended([LOST_PEER]), False, ECHO, "lost another rank"),
        (ended(["Load weight begin"], 137), False, DIED, "it ended with exit code 137, killed (signal 9)"),
        (seen(running=False, oom_killed=True, exit_code=1), False, DIED, "the kernel has killed it"),
        (ended(["bye"], 0), False, DIED, "it ended with exit code 0, and its log has no reason"),
        (seen(log=["Scheduler hit an exception: KeyError: 1"]), True, DIED, "hangs after a crash"),
    ],
)
def test_one_look(look: dict[str, Any], gone_wrong: bool, kind: int, words: str) -> None:
    lines = causes.stamped(look["log"], 0.0, 9.0)
    verdict = rank_watch.judge("node2", 1, look, lines, LOG, 0.0, gone_wrong)
    assert verdict.kind == kind
    assert words in verdict.reason


def failed(
    rank: int, kind: int, weight: Weight, means: str, at: float, lines: Sequence[str] = ()
) -> RankVerdict:
    symptom = Symptom(at, "rule", [], weight, means, "Use less.", list(lines))
    return RankVerdict(f"node{rank + 1}", rank, kind, "it ended with exit code 1", [symptom])


def test_the_rank_that_died_first_decides_not_the_one_that_lost_it() -> None:
    lost = failed(0, ECHO, "consequence", "it lost another rank", at=1.0)
    died = failed(1, DIED, "cause", "it ran out of memory", at=2.0, lines=[OUT_OF_MEMORY])
    first, cause, text = rank_board.explain([lost, died])
    assert first is died and cause is died.symptoms[0]
    assert text.splitlines() == [
        "Rank 1 on node2: it ran out of memory (it ended with exit code 1).",
        f"  | {OUT_OF_MEMORY}",
        "Then rank 0 on node1: it lost another rank (it ended with exit code 1).",
        "Use less.",
    ]


def test_how_a_log_is_read_comes_from_the_controller_alone() -> None:
    """A pattern of a node's record could keep this machine busy for ever, and its format take all memory."""
    texts = [(REPOSITORY / f"roles/engine/{part}/main.yml").read_text() for part in ("tasks", "vars")]
    given = [line.strip() for text in texts for line in text.splitlines() if "engine_log" in line]
    assert given == ['engine_log: "{{ engine_log }}"']


def test_a_long_line_takes_no_long_time() -> None:
    """The time of some patterns grows with the cube of a line, and nothing interrupts a search."""
    assert causes.in_log(LOG, causes.stamped(["a" * 2000 + OUT_OF_MEMORY], 0.0, 9.0)) == []
    lines = causes.stamped(["OOB" * 300_000, OUT_OF_MEMORY], 0.0, 9.0)
    assert [symptom.rule for symptom in causes.in_log(LOG, lines)] == ["out-of-memory"]
    assert causes.unknown_error(LOG, causes.stamped(["Error" * 300_000], 0.0, 9.0), 9.0, 0) is None
    assert LOG.doing(["Capture " * 300_000]) == ""


def late(rank: int) -> RankVerdict:
    running = RankVerdict(f"node{rank + 1}", rank, ALIVE, "running", doing="joining the other ranks")
    return rank_watch._late(running, 60, "")


def test_a_timeout_tells_what_every_rank_was_doing() -> None:
    first, _, text = rank_board.explain(
        [late(0), RankVerdict("node2", 1, ALIVE, "running", doing="starting")]
    )
    assert first.rank == 0 and text.startswith("Rank 0 on node1: not ready after 60 s.")
    assert "rank 0 on node1, when the time was up: joining the other ranks" in text
    assert "rank 1 on node2, when the time was up: starting" in text


def test_a_timeout_names_the_rank_that_hangs_after_a_failure() -> None:
    look = seen(log=[OUT_OF_MEMORY])
    hanging = rank_watch.judge("node2", 1, look, causes.stamped(look["log"], 0.0, 9.0), LOG, 0.0, False)
    first, _, text = rank_board.explain([late(0), hanging])
    assert hanging.kind == ALIVE and first is hanging
    assert "Then rank 0 on node1: not ready after 60 s." in text


def test_the_board_keeps_the_last_word_of_each_rank(tmp_path: Path) -> None:
    board = RankBoard(tmp_path / "board")
    board.post(RankVerdict("node2", 1, ALIVE, "running"))
    board.post(RankVerdict("node1", 0, ALIVE, "running"))
    last = failed(1, DIED, "cause", "gone", at=1.0, lines=["why"])
    board.post(last)
    assert [verdict.rank for verdict in board.read()] == [0, 1]
    assert board.read()[1] == last


def test_the_board_names_the_kinds_without_a_look_into_its_files(tmp_path: Path) -> None:
    board = RankBoard(tmp_path / "board")
    board.post(RankVerdict("node1", 0, ALIVE, "running"))
    board.post(RankVerdict("node11", 10, DIED, "gone"))
    board.post(RankVerdict("node1", 0, READY, "Hello"))
    for file in (tmp_path / "board").iterdir():
        file.write_text("not JSON")
    assert board.kinds() == {0: READY, 10: DIED}


@pytest.mark.parametrize(
    ("kinds", "settled"),
    [
        ([READY, READY], True),
        ([READY, ALIVE], False),
        ([READY], False),  # the other one has not looked yet
        ([ECHO, ALIVE], False),  # the reason may still come
        ([ECHO, DIED], True),
        ([LATE, ALIVE], True),
    ],
)
def test_when_the_board_decides(kinds: list[int], settled: bool) -> None:
    assert rank_watch._settled(kinds, ranks=2) is settled


def test_why_a_container_did_not_start_is_named() -> None:
    error = "500 Server Error (failed to inject CDI devices: unresolvable CDI devices nvidia.com/gpu=all)"
    verdict = rank_watch.not_started("node2", 1, error, LOG)
    assert error in verdict.state and "description of the GPUs" in verdict.state
    assert "nvidia-ctk cdi generate" in verdict.symptoms[0].fix
    unknown = rank_watch.not_started("node2", 1, "no such thing.", LOG)
    assert (unknown.state, unknown.symptoms[0].fix) == (
        "its container did not start: no such thing",
        "Correct that, then run the same command again.",
    )
