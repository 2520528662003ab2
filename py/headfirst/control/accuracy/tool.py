"""evalscope as a process that asks questions: jobs go in, answers come out, and are validated."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from headfirst.common.untrusted import UntrustedError, integer, json_object, shown
from headfirst.control.accuracy.questions import Question
from headfirst.control.accuracy.result import Answer
from headfirst.control.bench.process import DriverProcess, started

DRIVER = Path(__file__).with_name("driver.py")


@dataclass(frozen=True)
class Limits:
    """Of the requests. `timeout_s`: for one answer."""

    max_tokens: int
    concurrency: int
    timeout_s: float


class Tool:
    """The running tool, for one model of one API."""

    def __init__(self, process: DriverProcess, url: str, key: str, model: str) -> None:
        self._process = process
        self._target = {"url": f"{url}/v1", "key": key, "model": model}

    def ask(self, questions: Sequence[Question], limits: Limits, answered: Callable[[Answer], None]) -> None:
        """Ask all; `answered` gets each answer as it comes. HeadfirstError: the tool failed."""
        for kind in dict.fromkeys(question.kind for question in questions):
            same = [question for question in questions if question.kind == kind]
            with tempfile.TemporaryDirectory(prefix="headfirst-accuracy-") as folder:
                self._ask(kind, same, limits, Path(folder), answered)

    def _ask(
        self,
        kind: str,
        questions: Sequence[Question],
        limits: Limits,
        folder: Path,
        answered: Callable[[Answer], None],
    ) -> None:
        job = {
            **self._target,
            "kind": kind,
            "questions": [
                question.model_dump(include={"question", "answer", "choices"}) for question in questions
            ],
            "max_tokens": limits.max_tokens,
            "concurrency": limits.concurrency,
            "timeout": limits.timeout_s,
            "folder": str(folder),
        }
        self._process.send(job)
        while (event := self._process.event()) != {"ended": True}:
            if "answer" not in event:
                raise self._process.failed(event.get("failed"))
            answered(self._answer(event["answer"], questions))

    def _answer(self, given: Any, questions: Sequence[Question]) -> Answer:
        words = json_object(given, what="the load tool's answer")
        number = integer(words.pop("number", None), what="the load tool's answer", high=len(questions) - 1)
        question = questions[number]
        try:
            answer = Answer.model_validate({**words, "question": question.id, "place": question.place})
        except ValidationError as error:
            first = error.errors()[0]
            raise UntrustedError(
                f"the load tool reports an invalid answer: {first['loc']}: {shown(first['msg'])}"
            ) from None
        if answer.error is None:
            return answer
        return answer.model_copy(update={"error": self._process.reason(answer.error)})


@contextmanager
def running(python: Path, url: str, key: str, model: str, log: Path) -> Iterator[Tool]:
    """Start the tool against the API at `url` (without /v1); it ends with the context.

    `log` takes its output.
    """
    with started(python, DRIVER, key, log) as process:
        yield Tool(process, url, key, model)
