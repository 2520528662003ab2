"""What images answered, kept on this machine by the image's ID: an image with that ID answers the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from headfirst.common.errors import HeadfirstError
from headfirst.common.state_files import replace_file
from headfirst.control.paths import cache_dir
from headfirst.decide import engines
from headfirst.decide.engines import answers, probing
from headfirst.decide.engines.answers import Answers


class AskedCommand(NamedTuple):
    """Why the engine refuses a command, or why it was not asked; both "": it accepts the command."""

    problem: str = ""
    why: str = ""


def digest(value: Any) -> str:
    """The name under which an answer to `value` is kept."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]


def answers_of(engine: str, image: str) -> Answers | None:
    """What the image with this ID answered; None where it was not asked, or the file is damaged."""
    path = _file(engine, image, "answers")
    try:
        return answers.of_document(json.loads(path.read_text("utf-8")), engine, where=str(path), image=image)
    except (OSError, ValueError, HeadfirstError):
        return None


def keep_answers(engine: str, image: str, document: Any, *, where: str) -> Answers:
    """The answers in a document of the image, which is kept. Raises UntrustedError naming `where`."""
    told = answers.of_document(document, engine, where=where, image=image)
    replace_file(_file(engine, image, "answers"), json.dumps(document))
    return told


def documents(image: str) -> dict[str, Any]:
    """What the image with this ID answered, by the name of the probe, for another controller."""
    return {
        _probe(engine): json.loads(_file(engine, image, "answers").read_text("utf-8"))
        for engine in engines.names()
        if answers_of(engine, image)
    }


def take(engine: str, image: str, documents: Mapping[str, Any], *, where: str) -> None:
    """Keep what another controller was answered, if by this probe, where the image was not asked here."""
    if (document := documents.get(_probe(engine))) and answers_of(engine, image) is None:
        keep_answers(engine, image, document, where=where)


def command(engine: str, image: str, question: Mapping[str, Any]) -> AskedCommand | None:
    """What the image made of a command; None where it was not asked."""
    try:
        told = json.loads(_file(engine, image, digest(question)).read_text("utf-8"))
        return AskedCommand(str(told["problem"]), str(told["why"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep_command(engine: str, image: str, question: Mapping[str, Any], asked: AskedCommand) -> None:
    """Keep what the image made of a command. What it was not asked is asked again."""
    if not asked.why:
        replace_file(_file(engine, image, digest(question)), json.dumps(asked._asdict()))


def see(name: str, image: str) -> None:
    """Keep which image has the name, for plans that ask no host."""
    if seen(name) != image:
        replace_file(_name(name), image)


def seen(name: str) -> str:
    """The ID of the image that had the name on the host that was asked last; "" where none was."""
    try:
        return _name(name).read_text("utf-8")
    except OSError:
        return ""


def _name(name: str) -> Path:
    return cache_dir("image-answers", "names") / digest(name)


def _file(engine: str, image: str, name: str) -> Path:
    return cache_dir("image-answers", _probe(engine), image.removeprefix("sha256:")) / f"{name}.json"


def _probe(engine: str) -> str:
    """The name of the engine's probe: another program asks again."""
    return f"{engine}-{digest(probing.program(engine))[:12]}"
