"""Rate and time left of long work, from the file that the job plugin writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from headfirst.control.run.progress_file import ProgressTail


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def line(done: int, host: str = "node1") -> str:
    state = {"host": host, "what": "copy", "done": done, "total": 1000, "unit": "bytes", "note": "n"}
    return json.dumps(state) + "\n"


@pytest.fixture
def bad() -> list[str]:
    return []


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tail(tmp_path: Path, bad: list[str], clock: Clock) -> ProgressTail:
    return ProgressTail(tmp_path / "progress", bad.append, clock)


def append(tmp_path: Path, text: str) -> None:
    with (tmp_path / "progress").open("a") as file:
        file.write(text)


def test_no_file_yet(tail: ProgressTail) -> None:
    assert tail.read("weights") == []


def test_steady_work_has_a_steady_rate(tail: ProgressTail, tmp_path: Path, clock: Clock) -> None:
    states = []
    for second in range(5):
        clock.now = float(second)
        append(tmp_path, line(second * 100))
        states += tail.read("weights")
    assert states[0].rate is None
    assert states[0].eta is None
    assert [state.rate for state in states[1:]] == [pytest.approx(100)] * 4
    assert states[-1].eta == pytest.approx(6)


def test_a_jump_moves_the_rate_only_a_little(tail: ProgressTail, tmp_path: Path, clock: Clock) -> None:
    for second, done in enumerate((0, 100, 200, 700)):
        clock.now = float(second)
        append(tmp_path, line(done))
    rates = []
    for second, done in enumerate((0, 10, 20, 120), start=10):
        clock.now = float(second)
        append(tmp_path, line(done, "node2"))
        rates += [state.rate for state in tail.read("weights") if state.host == "node2"]
    assert rates[2] == pytest.approx(10)
    assert rates[3] is not None
    assert 10 < rates[3] < 25


def test_work_that_begins_anew_forgets_its_rate(tail: ProgressTail, tmp_path: Path, clock: Clock) -> None:
    append(tmp_path, line(0))
    tail.read("weights")
    clock.now = 1.0
    append(tmp_path, line(500))
    assert tail.read("weights")[0].rate == pytest.approx(500)
    clock.now = 2.0
    append(tmp_path, line(10))
    assert tail.read("weights")[0].rate is None


def test_half_lines_wait_and_bad_ones_are_told(tail: ProgressTail, tmp_path: Path, bad: list[str]) -> None:
    whole = line(100)
    append(tmp_path, "not json\n" + json.dumps({"host": "node1"}) + "\n" + whole[:10])
    assert tail.read("weights") == []
    append(tmp_path, whole[10:])
    (state,) = tail.read("weights")
    assert (state.stage, state.host, state.done, state.total, state.note) == (
        "weights",
        "node1",
        100,
        1000,
        "n",
    )
    assert bad == ["not json", '{"host": "node1"}']
