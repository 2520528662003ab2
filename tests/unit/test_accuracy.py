"""Questions of a data set, intervals and tests, recorded runs and their comparison: without a service."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from headfirst.common.errors import InputError
from headfirst.control.accuracy import questions
from headfirst.control.accuracy.comparison import compare
from headfirst.control.accuracy.result import (
    FILE,
    JOURNAL,
    Accuracy,
    ExamAnswer,
    Journal,
    Setup,
    differences,
    read,
)
from headfirst.control.accuracy.statistics import mcnemar, paired_difference, wilson
from headfirst.control.cli.app import app
from measured_subject import SUBJECT
from typer.testing import CliRunner

SETUP = Setup(headfirst="1", tool="evalscope 1", subject=SUBJECT, data="d", questions="q", max_tokens=9)


def write(path: Path, *lines: Any) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def run(answers: Sequence[ExamAnswer]) -> Accuracy:
    return Accuracy(date="2026-01-01T00:00:00+00:00", setup=SETUP, answers=list(answers))


def answers(rights: str, texts: str = "") -> list[ExamAnswer]:
    """One answer for each character: `+` right, `-` wrong, `!` failed; `texts` are their texts."""
    return [
        ExamAnswer(question=str(n), place=f"d:{n}", error="refused")
        if right == "!"
        else ExamAnswer(question=str(n), place=f"d:{n}", right=right == "+", text=texts[n : n + 1])
        for n, right in enumerate(rights)
    ]


# Data sets


@pytest.mark.parametrize(
    ("line", "kind", "answer"),
    [
        ({"question": "Q", "answer": "2 + 2 = <<2+2=4>>4\n#### 4"}, "number", "4"),
        ({"question": "Q", "answer": "#### -1,234.5"}, "number", "-1,234.5"),
        ({"question": "Q", "answer": 7}, "number", "7"),
        ({"question": "Q", "answer": "Paris"}, "text", "Paris"),
        ({"question": "Q", "answer": "4 cats"}, "text", "4 cats"),
        ({"question": "Q", "choices": ["x", "y"], "answer": 1}, "choice", "B"),
        ({"question": "Q", "choices": ["x", "y"], "answer": "A"}, "choice", "A"),
        ({"id": 1, "question": "Q", "A": "x", "B": "y", "C": "z", "answer": "C"}, "choice", "C"),
        ({"question": "Q", "subject": "law", "choices": ["1", "2"], "answer": 0}, "choice", "A"),
    ],
)
def test_the_forms_of_questions(tmp_path: Path, line: dict[str, Any], kind: str, answer: str) -> None:
    (question,) = questions.read(write(tmp_path / "data.jsonl", line))
    assert (question.kind, question.answer, question.place) == (kind, answer, "data.jsonl:1")
    assert len(question.choices) == (0 if kind != "choice" else 3 if "C" in line else 2)


@pytest.mark.parametrize(
    "line",
    [
        [],
        "text",
        {"question": "", "answer": "4"},
        {"question": "Q"},
        {"question": "Q", "answer": True},
        {"question": "Q", "answer": "#### "},
        {"question": ["Q"], "answer": "4"},
        {"question": "Q", "choices": ["x"], "answer": 0},
        {"question": "Q", "choices": ["x", "y"], "answer": 2},
        {"question": "Q", "choices": ["x", "y"], "answer": -1},
        {"question": "Q", "choices": ["x", "y"], "answer": "C"},
        {"question": "Q", "choices": ["x", "y"], "answer": ""},
        {"question": "Q", "choices": ["x", 3], "answer": 0},
        {"question": "Q", "choices": "xy", "answer": 0},
        {"question": "Q", "choices": [str(n) for n in range(11)], "answer": 0},
    ],
)
def test_a_line_that_is_no_question_is_named(tmp_path: Path, line: Any) -> None:
    file = write(tmp_path / "data.jsonl", {"question": "Q", "answer": "4"}, line)
    with pytest.raises(InputError, match="no question") as caught:
        questions.read(file)
    assert caught.value.where == f"{file}:2"


def test_what_is_no_data_set(tmp_path: Path) -> None:
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe")
    (tmp_path / "broken.jsonl").write_text('{"question": ')
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "folder").mkdir()
    for name, what in (
        ("bytes.jsonl", "not UTF-8"),
        ("broken.jsonl", "not JSON"),
        ("empty.jsonl", "has no questions"),
        ("folder", "no .jsonl file"),
        ("none.jsonl", "cannot be read"),
    ):
        with pytest.raises(InputError, match=what):
            questions.read(tmp_path / name)


def test_a_folder_is_read_in_the_order_of_its_files_and_each_question_once(tmp_path: Path) -> None:
    write(tmp_path / "b.jsonl", {"question": "Two?", "answer": "2"}, {"question": "One?", "answer": "1"})
    write(tmp_path / "a.jsonl", {"question": "One?", "answer": "1"})
    (tmp_path / "README.md").write_text("not read")
    assert [question.question for question in questions.read(tmp_path)] == ["One?", "Two?"]


def test_a_limit_chooses_the_same_questions_over_all_files(tmp_path: Path) -> None:
    for name in "ab":
        lines = [{"question": f"{name}{n}?", "answer": str(n)} for n in range(50)]
        write(tmp_path / f"{name}.jsonl", *lines)
    chosen = questions.read(tmp_path, 20)
    assert len(chosen) == 20
    assert {question.question[0] for question in chosen} == {"a", "b"}
    (tmp_path / "b.jsonl").rename(tmp_path / "0.jsonl")
    again = questions.read(tmp_path, 20)
    assert questions.digest(again) == questions.digest(chosen)
    assert questions.digest(again[1:]) != questions.digest(chosen)


# Statistics


@pytest.mark.parametrize(
    ("right", "total", "limits"),
    [  # Newcombe, Statistics in Medicine 17 (1998) 857, table I, method 3
        (81, 263, (0.2553, 0.3662)),
        (15, 148, (0.0624, 0.1605)),
        (0, 20, (0.0, 0.1611)),
        (1, 29, (0.0061, 0.1718)),
        (0, 0, (0.0, 1.0)),
    ],
)
def test_wilson(right: int, total: int, limits: tuple[float, float]) -> None:
    assert wilson(right, total) == pytest.approx(limits, abs=5e-5)
    low, high = wilson(total - right, total)
    assert (1 - high, 1 - low) == pytest.approx(limits, abs=5e-5)


@pytest.mark.parametrize(
    ("lost", "gained", "p"),
    # The binomial distribution's tails: 2 x (1 + 12 + 66) / 4096, 2 / 256, 2 x (1 + 5) / 32.
    [(0, 0, 1.0), (5, 5, 1.0), (10, 2, 158 / 4096), (8, 0, 2 / 256), (1, 4, 12 / 32), (6, 5, 1.0)],
)
def test_mcnemar(lost: int, gained: int, p: float) -> None:
    assert mcnemar(lost, gained) == mcnemar(gained, lost) == pytest.approx(p)
    assert 0 < mcnemar(30_000, 31_000) < 1e-4


@pytest.mark.parametrize(
    ("both", "lost", "gained", "neither", "limits"),
    [  # Newcombe, Statistics in Medicine 17 (1998) 2635, table II, method 10
        (36, 2, 12, 0, (0.0569, 0.3404)),
        (36, 12, 2, 0, (-0.3404, -0.0569)),
        (0, 0, 0, 0, (-1.0, 1.0)),
    ],
)
def test_the_difference_of_pairs(
    both: int, lost: int, gained: int, neither: int, limits: tuple[float, float]
) -> None:
    assert paired_difference(both, lost, gained, neither) == pytest.approx(limits, abs=5e-5)
    # That of equal runs is limited by their size.
    (few_low, few_high), (low, high) = paired_difference(40, 0, 0, 10), paired_difference(4000, 0, 0, 1000)
    assert few_low < low < 0 < high < few_high
    assert high < 0.001


# Runs


def test_the_score_is_of_answered_questions() -> None:
    score = run([*answers("++-!"), ExamAnswer(question="x", place="p", cut=True)]).score
    assert (score.right, score.answered, score.failed, score.cut, score.share) == (2, 4, 1, 1, 0.5)
    assert (score.low, score.high) == wilson(2, 4)


def test_runs_are_compared_on_what_both_answered() -> None:
    compared = compare(run(answers("++++!-", "abcdef")), run(answers("+--+++", "axcdef")))
    assert (compared.questions, compared.old_right, compared.new_right) == (5, 4, 3)
    assert (compared.lost, compared.gained, compared.equal) == (["d:1", "d:2"], ["d:5"], 4)
    assert compared.difference == pytest.approx(-1 / 5)
    assert compared.low < -1 / 5 < compared.high
    assert (compared.p, compared.verdict) == (1.0, "no difference")


@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ("+" * 6, "-" * 6, "worse"),
        ("-" * 6, "+" * 6, "better"),
        ("+" * 5, "-" * 5, "no difference"),  # p = 2 / 32
        ("+" * 50, "+" * 50, "no difference"),
    ],
)
def test_the_verdict(old: str, new: str, verdict: str) -> None:
    assert compare(run(answers(old)), run(answers(new))).verdict == verdict


def test_runs_on_other_questions_are_not_compared() -> None:
    with pytest.raises(InputError, match="answered none of these questions"):
        compare(run(answers("!+")), run(answers("+!")))
    other = SETUP.model_copy(update={"max_tokens": 8, "data": "e"})
    assert differences(SETUP, other) == {"max_tokens": (9, 8)}, "what else differs"


def test_a_run_is_written_and_read(tmp_path: Path) -> None:
    result = run(answers("+-"))
    result.write(tmp_path)
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    assert read(tmp_path) == read(tmp_path / FILE) == result


@pytest.mark.parametrize("content", ["", "[]", '{"version": 2}', '{"version": 1, "answers": []}'])
def test_what_is_no_run(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(InputError):
        read(tmp_path)
    with pytest.raises(InputError, match="No such file"):
        read(tmp_path / "other.json")


def test_an_interrupted_run_continues_without_its_failed_answers(tmp_path: Path) -> None:
    first = Journal(tmp_path, SETUP)
    for answer in answers("+-!"):
        first.add(answer)
    first.close()
    path = tmp_path / JOURNAL
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text(path.read_text() + '{"question": "half')
    second = Journal(tmp_path, SETUP)
    assert second.answers == answers("+-")
    second.add(ExamAnswer(question="2", place="d:2"))
    second.close()
    assert [answer.question for answer in Journal(tmp_path, SETUP).answers] == ["0", "1", "2"]
    with pytest.raises(InputError, match="another service, data set or limit"):
        Journal(tmp_path, SETUP.model_copy(update={"max_tokens": 8}))
    path.write_text(SETUP.model_dump_json() + '\n{"question": 1}\n')
    with pytest.raises(InputError, match="no run of"):
        Journal(tmp_path, SETUP)


# The command line


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--accuracy", "d.jsonl", "--only", "chat.*"], "--accuracy excludes --only"),
        (["--accuracy", "d.jsonl", "--junit", "x.xml"], "--accuracy excludes --junit"),
        (["--compare", "run"], "--compare needs --accuracy DATA"),
        (["--questions", "4"], "--questions needs --accuracy DATA"),
        (["-o", "run"], "--output needs --accuracy DATA"),
        (["--accuracy", "/no/such/d.jsonl"], "cannot be read"),
        (["--accuracy", "/no/such/d.jsonl", "--compare", "/no/run.json"], "no run of"),
    ],
)
def test_options_that_exclude_each_other(words: list[str], what: str) -> None:
    done = CliRunner().invoke(app, ["test", "cluster.ini", *words])
    assert isinstance(done.exception, InputError)
    assert what in str(done.exception)
