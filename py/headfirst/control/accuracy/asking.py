"""Asks questions through evalscope, each kind as one job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headfirst.common.untrusted import integer
from headfirst.control.accuracy.questions import Question
from headfirst.control.accuracy.result import ExamAnswer
from headfirst.control.evalscope.process import Evalscope


@dataclass(frozen=True)
class Limits:
    """Of the requests. `timeout_s`: for one answer."""

    max_tokens: int
    concurrency: int
    timeout_s: float


def ask(
    tool: Evalscope,
    model: str,
    questions: Sequence[Question],
    limits: Limits,
    answered: Callable[[ExamAnswer], None],
) -> None:
    """Ask all; `answered` gets each answer as it comes. HeadfirstError: the tool failed."""
    words = {"question", "answer", "choices"}
    for kind in dict.fromkeys(question.kind for question in questions):
        same = [question for question in questions if question.kind == kind]
        job = {
            "model": model,
            "kind": kind,
            "questions": [question.model_dump(include=words) for question in same],
            "max_tokens": limits.max_tokens,
            "concurrency": limits.concurrency,
            "timeout": limits.timeout_s,
        }
        for result in tool.run(job):
            number = integer(result.pop("number", None), what="the load tool's answer", high=len(same) - 1)
            asked_question = {"question": same[number].id, "place": same[number].place}
            answered(tool.attempt(ExamAnswer, {**result, **asked_question}))
