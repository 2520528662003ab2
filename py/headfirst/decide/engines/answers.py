"""What an engine of one version answers about itself: in its image, or in the snapshot beside its adapter.

The program `probe.py` of each engine writes both: snapshot.json holds what it answered for the version that
plans without an image are checked against.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from headfirst.common.untrusted import shown
from headfirst.decide.containers.answers import Answers as Answers
from headfirst.decide.frozen import Frozen, Tolerant
from headfirst.decide.package_data import read_json
from headfirst.decide.untrusted_model import validated


def _text(pattern: str) -> AfterValidator:
    """A text of this form. Not pydantic's own patterns: these lose a Ctrl-C while they are compiled."""
    form = re.compile(pattern, re.ASCII)

    def check(text: str) -> str:
        if not form.fullmatch(text):
            raise ValueError(f"{shown(text)} does not have the form {pattern}")
        return text

    return AfterValidator(check)


VERSION = r"\d+\.\d+[\w.+-]{0,60}"
Word = Annotated[str, _text(r"[\w.+:/@ -]{1,200}")]
Version = Annotated[str, _text(VERSION)]
Flag = Annotated[str, _text(r"--?[A-Za-z][\w.-]{0,100}")]
# What an image may answer: SGLang 0.5.23 has 540 options, vLLM 0.33.0 334 architectures.
_MOST_OPTIONS, MOST = 5000, 2000
Words = Annotated[frozenset[Word], Field(max_length=MOST)]


class Option(Tolerant):
    """One option of an engine's command line, as decide/engines/arguments.py reads it."""

    flags: Annotated[tuple[Flag, ...], Field(min_length=1, max_length=20)]
    dest: Word
    type: Word
    nargs: str | int | None = None
    choices: Annotated[tuple[Word | int | float | bool, ...] | None, Field(max_length=MOST)] = None
    const: bool | None = None
    none: bool | None = None
    repeat: bool | None = None
    keys: Annotated[tuple[Word, ...] | None, Field(max_length=MOST)] = None
    negative: tuple[Flag, ...] | None = None
    registered: Annotated[tuple[Word, ...] | None, Field(max_length=MOST)] = None


class Document(Frozen):
    """What a probe writes. `unanswered`: the reason by the name of each part that was not answered."""

    engine: Word
    version: Version
    options: Annotated[tuple[Option, ...] | None, Field(max_length=_MOST_OPTIONS)] = None
    support: dict[str, Any] | None = None
    cuda: Word | None = None
    nccl: Word | None = None
    unanswered: dict[Word, Annotated[str, Field(max_length=2000)]] = {}


@cache
def snapshot(engine: str) -> Answers:
    """What the version that plans are checked against answered."""
    package = f"{__package__}.{engine}"
    return of_document(read_json(package, "snapshot.json"), engine, where=f"{engine}/snapshot.json")


def of_document(document: Any, engine: str, *, where: str, image: str = "") -> Answers:
    """The answers in a probe's document; what it lacks is the snapshot's. UntrustedError naming `where`."""
    what = "the answer of the image"
    told = validated(Document, document, what=what, where=where)
    tables = import_module(f"{__package__}.{engine}.support").SupportTable
    options = tuple(each.model_dump(exclude_none=True) for each in told.options or ())
    support = None if told.support is None else validated(tables, told.support, what=what, where=where)
    return Answers(
        engine=engine,
        version=told.version,
        options=options or snapshot(engine).options,
        support=snapshot(engine).support if support is None else support,
        image=image,
        cuda=told.cuda or "",
        unanswered=told.unanswered,
        guessed=told.options is None or told.support is None,
    )
