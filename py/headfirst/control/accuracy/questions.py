"""The questions of a data set: JSON lines in the forms of GSM8K, MMLU and evalscope's own multiple choice."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from headfirst.common.errors import InputError
from headfirst.common.untrusted import UntrustedError, json_document
from headfirst.decide.frozen import Frozen

MAX_FILE_BYTES = 256 << 20
MAX_LINE_BYTES = 1 << 20
MAX_QUESTIONS = 100_000
LETTERS = "ABCDEFGHIJ"  # of evalscope's multiple choice
_SUFFIX = ".jsonl"
_REASONING_END = "####"  # GSM8K: the number follows it
_NUMBER = re.compile(r"[-+]?\d[\d,]*(\.\d+)?")
_WHERE = "--accuracy"
_HINT = (
    'Write {"question": "…", "answer": "…"} or {"question": "…", "choices": ["…", "…"], "answer": 0} a line.'
)

Kind = Literal["number", "choice", "text"]


class Question(Frozen):
    """One question. `answer` is a number, a letter of LETTERS, or a text; `choices` is for kind `choice`."""

    place: str  # the file's name and the line's number
    kind: Kind
    question: str
    answer: str
    choices: list[str] = []

    @property
    def id(self) -> str:
        """The same for the same question, in whatever file it is."""
        words = [self.kind, self.question, self.answer, self.choices]
        return hashlib.sha256(json.dumps(words).encode()).hexdigest()[:16]


def read(path: Path, limit: int | None = None) -> list[Question]:
    """The questions of a file, or of all `*.jsonl` files of a folder; each once, in their order.

    `limit`: so many of them, spread over the files, and always the same ones. InputError names the first line
    that is no question.
    """
    questions = {question.id: question for file in _files(path) for question in _lines(file)}
    if not questions:
        raise InputError(f"{path} has no questions", where=_WHERE, hint=_HINT)
    if len(questions) > MAX_QUESTIONS:
        raise InputError(f"{path} has more than {MAX_QUESTIONS:,} questions", where=_WHERE)
    chosen = set(sorted(questions)[:limit])  # ids are hashes, so that their order is a random one
    return [question for name, question in questions.items() if name in chosen]


def digest(questions: Iterable[Question]) -> str:
    """The same for the same questions."""
    return hashlib.sha256("".join(sorted(question.id for question in questions)).encode()).hexdigest()[:16]


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix == _SUFFIX and file.is_file())
    if not files:
        raise InputError(f"the folder {path} has no {_SUFFIX} file", where=_WHERE)
    return files


def _lines(file: Path) -> Iterator[Question]:
    try:
        if file.stat().st_size > MAX_FILE_BYTES:
            raise InputError(f"{file} is larger than {MAX_FILE_BYTES >> 20} MiB", where=_WHERE)
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}", where=_WHERE) from None
    except UnicodeDecodeError:
        raise InputError(f"{file} is not UTF-8 text", where=_WHERE, hint=_HINT) from None
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                document = json_document(line, what="the line", limit=MAX_LINE_BYTES)
            except UntrustedError as error:
                raise InputError(error.what, where=f"{file}:{number}", hint=_HINT) from None
            question = _question(document, f"{file.name}:{number}")
            if question is None:
                raise InputError("the line is no question", where=f"{file}:{number}", hint=_HINT)
            yield question


def _question(document: Any, place: str) -> Question | None:
    """None for what is in none of the forms."""
    if not isinstance(document, dict) or not _is_text(document.get("question")):
        return None
    text: str = document["question"]
    answer: Any = document.get("answer")
    choices = document.get("choices")
    if choices is None and "A" in document:
        choices = [document[letter] for letter in LETTERS if letter in document]
    if choices is not None:
        letter = _letter(answer, choices)
        if letter is None:
            return None
        return Question(place=place, kind="choice", question=text, answer=letter, choices=choices)
    if isinstance(answer, int | float) and not isinstance(answer, bool):
        answer = json.dumps(answer)
    if not _is_text(answer):
        return None
    answer = answer.rpartition(_REASONING_END)[2].strip()
    if not answer:
        return None
    kind: Kind = "number" if _NUMBER.fullmatch(answer) else "text"
    return Question(place=place, kind=kind, question=text, answer=answer)


def _letter(answer: Any, choices: Any) -> str | None:
    """The letter of the right choice, of its index or of a letter; None where there is no such choice."""
    if (
        not isinstance(choices, list)
        or not 2 <= len(choices) <= len(LETTERS)
        or not all(map(_is_text, choices))
    ):
        return None
    letters = LETTERS[: len(choices)]
    if isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer < len(letters):
        return letters[answer]
    return answer if isinstance(answer, str) and len(answer) == 1 and answer in letters else None


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())
