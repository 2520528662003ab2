"""The engines by name. A folder here with a module `engine` is one engine.

That module has `engine`, which makes the Engine of what an image, or the snapshot beside it, answered.
"""

from __future__ import annotations

import difflib
import pkgutil
import re
from dataclasses import replace
from functools import cache, lru_cache
from importlib import import_module

from headfirst.common.errors import InputError
from headfirst.decide.cluster.types import Service
from headfirst.decide.engines.answers import VERSION, Answers, snapshot
from headfirst.decide.engines.base import Engine


@cache
def names() -> tuple[str, ...]:
    """The names of all engines, without loading any."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if module.ispkg))


def get(
    name: str, version: str | None = None, *, answers: Answers | None = None, where: str | None = None
) -> Engine:
    """The engine called `name` as its image answered, else as the snapshot has it.

    `version` names the default images, and is the engine's where its image has not answered. Raises
    InputError at `where` for an unknown name, and for a text that is no version.
    """
    if name not in names():
        near = difflib.get_close_matches(name, names(), n=1)
        hint = f"Did you mean {near[0]}?" if near else f"Known engines: {', '.join(names())}."
        raise InputError(f"Unknown engine {name!r}", where=where, hint=hint)
    known = snapshot(name)
    if version is not None and not re.fullmatch(VERSION, version):
        hint = f"Write it as the tags of its images have it, such as {known.version}."
        raise InputError(f"engine_version={version} is not a version", where=where, hint=hint)
    version = version or known.version
    return _made(answers or known, version, guessed=version != known.version)


@lru_cache(maxsize=64)
def _made(answers: Answers, version: str, *, guessed: bool) -> Engine:
    make = import_module(f"{__name__}.{answers.engine}.engine").engine
    named: Engine = make(replace(answers, version=version, guessed=guessed))
    return replace(make(answers), images=named.images) if answers.image else named


def of_service(service: Service) -> tuple[Engine, str]:
    """The engine that runs the service, and the note of `of_image`."""
    settings = service.settings
    return of_image(
        settings.engine,
        settings.engine_image,
        settings.engine_version,
        device=settings.engine_device,
        answers=service.answers,
        where=service.given.get("engine_version" if settings.engine_version else "engine"),
    )


def of_image(
    name: str,
    image: str | None,
    version: str | None = None,
    *,
    device: str = "cuda",
    answers: Answers | None = None,
    where: str | None = None,
) -> tuple[Engine, str]:
    """The engine in `image` (None: its default one for `device`), and a note on what was not asked; "": none.

    What the image answered decides. Else it is of the version that the tag of an image of the engine names,
    else of `version`, else of the snapshot's. Raises InputError at `where` when `version` and the tag name
    different versions.
    """
    engine = get(name, version, answers=answers, where=where)
    known = f"{engine.title} {snapshot(name).version}"
    used = image or engine.images.get(device) or ""
    shown = f"engine_image={image}" if image else used
    if answers is not None:
        parts = ", ".join(f"{part} ({reason})" for part, reason in answers.unanswered.items())
        return engine, f"{shown} did not answer {parts}: as in {known}." if parts else ""
    tagged = engine.image_version(used) if name in repository_of(used) else None
    if version and tagged not in (None, version):
        raise InputError(
            f"engine_version={version}, and {shown} is of version {tagged}.",
            where=where,
            hint="Remove engine_version: the version then follows from the image.",
        )
    stated = tagged or version
    if stated == snapshot(name).version or not (stated or image):
        return engine, ""
    engine = _made(snapshot(name), stated or engine.version, guessed=True)
    subject = f"engine_version={version}" if version else f"{shown} has a tag without a version"
    subject = f"{shown} is of {engine.title} {tagged}" if tagged else subject
    return engine, (
        f"{subject}: arguments and models are checked against the snapshot of {known}. `deploy plan "
        "--image` asks the image, and `deploy up` does before it starts a rank."
    )


def repository_of(image: str) -> str:
    """An image's name without tag and digest."""
    head, slash, last = image.partition("@")[0].rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"
