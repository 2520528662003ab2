"""What an engine of one version answers about itself: in its image, or in the snapshot beside its adapter.

The program `probe.py` of each engine writes both: snapshot.json holds what it answered for the version that
plans without an image are checked against.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from headfirst.decide.frozen import Frozen, Tolerant
from headfirst.decide.package_data import read_json
from headfirst.decide.untrusted_model import validated

Word = Annotated[str, StringConstraints(pattern=r"^[\w.+:/@ -]{1,200}\Z")]
Version = Annotated[str, StringConstraints(pattern=r"^\d+\.\d+[\w.+-]{0,60}\Z")]
Flag = Annotated[str, StringConstraints(pattern=r"^--?[A-Za-z][\w.-]{0,100}\Z")]
# What an image may answer: SGLang 0.5.23 has 540 options.
_MOST_OPTIONS, _MOST_CHOICES = 5000, 2000


class Option(Tolerant):
    """One option of an engine's command line, as decide/engines/arguments.py reads it."""

    flags: Annotated[tuple[Flag, ...], Field(min_length=1, max_length=20)]
    dest: Word
    type: Word
    nargs: str | int | None = None
    choices: Annotated[tuple[str | int | float | bool, ...] | None, Field(max_length=_MOST_CHOICES)] = None
    const: bool | None = None
    none: bool | None = None
    repeat: bool | None = None
    keys: Annotated[tuple[Word, ...] | None, Field(max_length=_MOST_CHOICES)] = None
    negative: tuple[Flag, ...] | None = None
    registered: Annotated[tuple[Word, ...] | None, Field(max_length=_MOST_CHOICES)] = None


class Document(Frozen):
    """What a probe writes. `unanswered`: the reason by the name of each part that was not answered."""

    engine: Word
    version: Version
    options: Annotated[tuple[Option, ...] | None, Field(max_length=_MOST_OPTIONS)] = None
    support: dict[str, Any] | None = None
    cuda: Word | None = None
    nccl: Word | None = None
    unanswered: dict[Word, Annotated[str, StringConstraints(max_length=2000)]] = {}


@dataclass(frozen=True, eq=False)
class Answers:
    """An engine's options and tables. `image`: the ID of the image that answered; "": they are the snapshot.

    `support` is of the class SupportTable of the engine's module `support`. `unanswered`: parts that the
    image did not answer, which are the snapshot's, each with the reason.
    """

    engine: str
    version: str
    options: tuple[Mapping[str, Any], ...]
    support: Any
    image: str = ""
    cuda: str = ""
    nccl: str = ""
    unanswered: Mapping[str, str] = field(default_factory=dict)


@cache
def snapshot(engine: str) -> Answers:
    """What the version that plans are checked against answered."""
    package = f"{__package__}.{engine}"
    return of_document(read_json(package, "snapshot.json"), engine, where=f"{engine}/snapshot.json")


def of_document(document: Any, engine: str, *, where: str, image: str = "") -> Answers:
    """The answers in a probe's document; what it lacks is the snapshot's. UntrustedError naming `where`."""
    told = validated(Document, document, what="the answer of the image", where=where)
    options = told.options and tuple(each.model_dump(exclude_unset=True) for each in told.options)
    tables = import_module(f"{__package__}.{engine}.support").SupportTable
    what = "the answer of the image"
    support = told.support and validated(tables, told.support, what=what, where=where)
    known = None if options and support else snapshot(engine)
    return Answers(
        engine=engine,
        version=told.version,
        options=options or (known.options if known else ()),
        support=support or (known.support if known else None),
        image=image,
        cuda=told.cuda or "",
        nccl=told.nccl or "",
        unanswered=told.unanswered,
    )
