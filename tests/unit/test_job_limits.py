"""When a job is stopped: after a silence, which no sign of life ends, and at its time limit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.headfirst.serving.plugins.action import job as job_action
from ansible_collections.headfirst.serving.plugins.action.job import ActionModule
from ansible_collections.headfirst.serving.plugins.plugin_utils.job_script import Job, JobReport, poll, stop
from headfirst.node.weights.outlook import Stages
from headfirst.node.weights.transfer.board import Board, Member, Overview
from transfer_hosts import KEY

JOB = Job("test", ["true"], time_limit_s=90)
ENDED = JobReport("ended", exit="success exited 0")


def follow(
    reports: list[JobReport], monkeypatch: pytest.MonkeyPatch, silence_s: int = 10, state: str = "finished"
) -> tuple[Any, list[str]]:
    """The result of a job that reports these, one a second, and the scripts that the node got."""
    coming: Iterator[JobReport] = iter(reports)
    clock: Iterator[int] = iter(range(10_000))
    scripts: list[str] = []

    def ask(script: str) -> JobReport:
        scripts.append(script)
        return next(coming)

    monkeypatch.setattr(job_action.time, "monotonic", lambda: next(clock))
    action = object.__new__(ActionModule)
    action._host, action._what, action._silence_s, action._ask = "node1", "pull image", silence_s, ask
    action._returns = {}
    return action._follow(JOB, state), scripts


def running(**progress: object) -> JobReport:
    return JobReport("running", progress=progress)


def test_a_silent_job_is_stopped_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    result, scripts = follow([running(done=1)] * 40, monkeypatch)
    assert result["failed"]
    assert "pull image was stopped on node1: it made no progress for 10 s" in result["msg"]
    assert scripts[-1] == stop(JOB)
    assert len(scripts) < 15


@pytest.mark.parametrize(
    "moving",
    [
        [running(done=number) for number in range(40)],
        [running(done=1, alive=number) for number in range(40)],
        [JobReport("running", log=[str(number)]) for number in range(40)],
    ],
)
def test_each_sign_of_life_counts(moving: list[JobReport], monkeypatch: pytest.MonkeyPatch) -> None:
    result, scripts = follow([*moving, ENDED], monkeypatch)
    assert "failed" not in result
    assert stop(JOB) not in scripts


def test_without_a_limit_a_silence_may_last(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "failed" not in follow([*[running()] * 500, ENDED], monkeypatch, silence_s=0)[0]


def test_the_time_limit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = JobReport("ended", exit="timeout killed TERM", result={"msg": "Stopped."})
    result, _ = follow([running(), ended], monkeypatch)
    assert "took longer than 90 s (timeout)" in result["msg"]


def test_who_waits_for_others_is_alive_as_long_as_these_move() -> None:
    board = Board(1, 2, KEY)
    board.describe(Overview(1, {}, {"a": 10}))
    stages = Stages(board, converts=False)
    seen = []
    for received in (1, 2, 2):
        board.merge_members({0: Member(beat=board.members[0].beat + 1, received=received)})
        stages.update({"a": 10}, 0, 0, received)
        seen.append(stages.alive)
    assert seen == [1, 2, 2]


def test_what_is_awaited_is_not_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    result, scripts = follow([ENDED], monkeypatch, state="awaited")
    assert result == {"changed": True}
    assert scripts == [poll(JOB, job_action.FIRST_WAIT_S)]
