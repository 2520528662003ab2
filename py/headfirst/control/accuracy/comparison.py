"""Two runs on the same questions: which answers became wrong, and whether that can be chance."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from headfirst.common.errors import InputError
from headfirst.control.accuracy.result import Accuracy, Score, Setup
from headfirst.control.accuracy.statistics import mcnemar, paired_difference
from headfirst.decide.frozen import Tolerant

SIGNIFICANCE = 0.05

Verdict = Literal["worse", "better", "no difference"]


class Comparison(Tolerant):
    """New against old, on the questions that both answered.

    `lost`: places of the questions that only the old run has right; `gained`: only the new one. `difference`
    of the shares of right answers, new - old, is between `low` and `high` with 95 % confidence. `p`: of
    McNemar's exact test. `equal`: answers with the same text.
    """

    questions: int
    old_right: int
    new_right: int
    lost: list[str]
    gained: list[str]
    equal: int
    difference: float
    low: float
    high: float
    p: float
    verdict: Verdict


def require_common(old: Accuracy, questions: Iterable[str]) -> None:
    """InputError: the earlier run answered none of these questions, which are ids."""
    answered = {answer.question for answer in old.answers if answer.error is None}
    if answered.isdisjoint(questions):
        raise InputError(
            "the earlier run answered none of these questions",
            where="--compare",
            hint="Give --accuracy the data of that run.",
        )


def compare(old: Accuracy, new: Accuracy) -> Comparison:
    """InputError: no question was answered in both."""
    require_common(old, (answer.question for answer in new.answers if answer.error is None))
    before = {answer.question: answer for answer in old.answers if answer.error is None}
    pairs = [
        (before[answer.question], answer)
        for answer in new.answers
        if answer.error is None and answer.question in before
    ]
    lost = [answer.place for earlier, answer in pairs if earlier.right and not answer.right]
    gained = [answer.place for earlier, answer in pairs if answer.right and not earlier.right]
    both = sum(earlier.right and answer.right for earlier, answer in pairs)
    neither = len(pairs) - both - len(lost) - len(gained)
    low, high = paired_difference(both, len(lost), len(gained), neither)
    p = mcnemar(len(lost), len(gained))
    return Comparison(
        questions=len(pairs),
        old_right=both + len(lost),
        new_right=both + len(gained),
        lost=lost,
        gained=gained,
        equal=sum(earlier.text == answer.text for earlier, answer in pairs),
        difference=(len(gained) - len(lost)) / len(pairs),
        low=low,
        high=high,
        p=p,
        verdict=_verdict(p, len(lost), len(gained)),
    )


def _verdict(p: float, lost: int, gained: int) -> Verdict:
    if p >= SIGNIFICANCE:
        return "no difference"
    return "worse" if lost > gained else "better"


class AccuracySummary(Tolerant):
    """A run without its answers, which are in `folder`. `compared`: None without another run."""

    folder: str
    date: str
    setup: Setup
    score: Score
    compared: Comparison | None


def summary(folder: Path, result: Accuracy, baseline: Accuracy | None) -> AccuracySummary:
    """InputError: no question was answered in both."""
    return AccuracySummary(
        folder=str(folder),
        date=result.date,
        setup=result.setup,
        score=result.score,
        compared=compare(baseline, result) if baseline else None,
    )
