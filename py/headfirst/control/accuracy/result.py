"""What a run measured: a file that a later run can be compared with, and the answers as they come."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, Field

from headfirst.common.errors import InputError
from headfirst.common.state_files import replace_file
from headfirst.control.accuracy.statistics import wilson
from headfirst.control.bench.result import BenchSubject, parsed
from headfirst.control.evalscope.process import RequestResult
from headfirst.decide.frozen import Frozen

FILE = "accuracy.json"
JOURNAL = "answers.jsonl"
MAX_FILE_BYTES = 1 << 30
_MAX_LINE_BYTES = 1 << 20
_OF_RUN = ("the run", "no run of `deploy test --accuracy`")

Count = Annotated[int, Field(ge=0)]


class ExamAnswer(RequestResult):
    """What became of one question. `extracted` is the part of `text` that was compared with the right answer.

    `cut`: the answer ended at `max_tokens`. With `error` there was no answer.
    """

    question: str  # Question.id
    place: str  # Question.place
    right: bool = False
    extracted: str = ""
    text: str = ""
    cut: bool = False
    tokens: Count = 0


class Endpoint(Frozen):
    """A service that Headfirst did not deploy; `url` is without `/v1`. Nothing else of it is known."""

    url: str
    model: str

    @property
    def names(self) -> tuple[str, str]:
        """Of the folder of its runs, and of a run in it."""
        return re.sub(r"[^A-Za-z0-9.]+", "-", urlsplit(self.url).netloc).strip("-."), self.model


class Setup(Frozen):
    """What the answers of a run depend on."""

    headfirst: str
    tool: str
    subject: BenchSubject | Endpoint
    data: str  # the name of the file or folder
    questions: str  # questions.digest
    max_tokens: Count


class Score(Frozen):
    """Of the answered questions; `low` and `high` limit the share of right ones with 95 % confidence."""

    right: Count
    answered: Count
    failed: Count
    cut: Count
    share: float
    low: float
    high: float


class Accuracy(Frozen):
    """A whole run."""

    version: Literal[1] = 1
    date: str  # ISO 8601, UTC
    setup: Setup
    answers: list[ExamAnswer]

    @property
    def score(self) -> Score:
        """How many answers are right."""
        answered = [answer for answer in self.answers if answer.error is None]
        right = sum(answer.right for answer in answered)
        low, high = wilson(right, len(answered))
        return Score(
            right=right,
            answered=len(answered),
            failed=len(self.answers) - len(answered),
            cut=sum(answer.cut for answer in answered),
            share=right / len(answered) if answered else 0.0,
            low=low,
            high=high,
        )

    def write(self, folder: Path) -> None:
        """Write FILE into `folder`, mode 0600. The journal goes where each question has an answer."""
        replace_file(folder / FILE, self.model_dump_json(indent=1) + "\n")
        if not self.score.failed:
            (folder / JOURNAL).unlink(missing_ok=True)


def read(path: Path) -> Accuracy:
    """An earlier run: its folder, or its file. InputError: there is none."""
    file = path / FILE if path.is_dir() else path
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            raise InputError(f"{file} is too large for a run", where=str(path))
        content = file.read_bytes()
    except OSError as error:
        raise InputError(f"no run of `deploy test --accuracy`: {error.strerror}", where=str(file)) from None
    return parsed(Accuracy, content, *_OF_RUN, where=str(file), limit=MAX_FILE_BYTES)


class Journal:
    """The answers of a run that has not ended, so that it can be continued. The file has mode 0600."""

    def __init__(self, folder: Path, setup: Setup) -> None:
        """Begin a run, or continue the one in `folder`. InputError: that one has another setup."""
        path = folder / JOURNAL
        self.answers = _continued(path, setup)
        # As a whole, so that half a line and failed answers of the earlier run go.
        replace_file(path, "".join(map(_line, [setup, *self.answers])))
        self._file = path.open("a", encoding="utf-8")

    def add(self, answer: ExamAnswer) -> None:
        """Keep an answer."""
        self.answers.append(answer)
        self._file.write(_line(answer))
        self._file.flush()

    def close(self) -> None:
        """No answer follows."""
        self._file.close()


def _line(model: BaseModel) -> str:
    return model.model_dump_json() + "\n"


def _continued(path: Path, setup: Setup) -> list[ExamAnswer]:
    """The answers of the run that began there, without failed ones, which are asked again."""
    if not path.exists():
        return []
    if path.stat().st_size > MAX_FILE_BYTES:
        raise InputError(f"{path} is too large", where="-o")
    # An interrupted run may end in half a line.
    lines = path.read_bytes().split(b"\n")[:-1]
    if not lines:
        return []
    where = str(path)
    if parsed(Setup, lines[0], *_OF_RUN, where=where, limit=_MAX_LINE_BYTES) != setup:
        raise InputError(
            "the run that began there has another service, data set or limit",
            where=where,
            hint="Name another folder with -o, or remove this file.",
        )
    answers = [parsed(ExamAnswer, line, *_OF_RUN, where=where, limit=_MAX_LINE_BYTES) for line in lines[1:]]
    return [answer for answer in answers if answer.error is None]


def differences(old: Setup, new: Setup) -> dict[str, tuple[Any, Any]]:
    """What besides the service was not equal in two runs, and so may explain their scores."""
    names: Sequence[str] = ("tool", "max_tokens")
    pairs = {name: (getattr(old, name), getattr(new, name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
