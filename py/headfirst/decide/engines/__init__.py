"""The engines by name and version. A folder here with a module `engine` is one engine.

That module has ENGINES: one Engine for each version that is supported, the newest first.
"""

from __future__ import annotations

import difflib
import pkgutil
import re
from functools import cache
from importlib import import_module

from headfirst.common.errors import InputError
from headfirst.decide.engines.base import Engine


@cache
def names() -> tuple[str, ...]:
    """The names of all engines, without loading any."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if module.ispkg))


def versions(name: str) -> tuple[str, ...]:
    """The supported versions of the engine `name`, the newest first."""
    return tuple(engine.version for engine in _supported(name))


def get(name: str, version: str | None = None, *, where: str | None = None) -> Engine:
    """The engine called `name`, of its newest supported version or of `version`.

    Raises InputError at `where` with the known names or versions.
    """
    if name not in names():
        near = difflib.get_close_matches(name, names(), n=1)
        hint = f"Did you mean {near[0]}?" if near else f"Known engines: {', '.join(names())}."
        raise InputError(f"Unknown engine {name!r}", where=where, hint=hint)
    supported = _supported(name)
    if version is None:
        return supported[0]
    engine = next((engine for engine in supported if engine.version == version), None)
    if engine is None:
        raise InputError(
            f"{supported[0].title} {version} is not supported",
            where=where,
            hint=f"Supported versions: {', '.join(versions(name))}.",
        )
    return engine


def of_image(
    name: str, image: str | None, version: str | None = None, *, where: str | None = None
) -> tuple[Engine, str | None]:
    """The engine that runs in `image` (None: its default one), and a note where that is not known for sure.

    It is of `version`, else of the version that the image's tag names, else the newest. Raises InputError at
    `where` when `version` and the tag name different versions.
    """
    newest = get(name, where=where)
    tagged = newest.image_version(image) if image else None
    if version is not None:
        if tagged not in (None, version):
            raise InputError(
                f"engine_version={version}, and engine_image={image} is of version {tagged}.",
                where=where,
                hint="Remove engine_version: the version then follows from the image.",
            )
        return get(name, version, where=where), None
    if image is None:
        return newest, None
    if tagged in versions(name):
        return get(name, tagged), None
    if name not in repository_of(image):
        tagged = None  # of another program, or of a name of one's own
    if tagged and (base := _base(tagged)) in versions(name):
        engine = get(name, base)
        return engine, f"engine_image={image} is of {tagged}: arguments are checked against {base}."
    what = (
        f"is of {newest.title} {tagged}, which is not supported" if tagged else "has a tag without a version"
    )
    advice = "" if tagged else f" Set engine_version to one of {', '.join(versions(name))}."
    return (
        newest,
        f"engine_image={image} {what}: arguments are checked against {newest.version}.{advice}",
    )


def repository_of(image: str) -> str:
    """An image's name without tag and digest."""
    head, slash, last = image.partition("@")[0].rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"


def without_tables(engine: Engine, image: str | None) -> str | None:
    """The version that the image's tag names and that is not supported; None where there is no such."""
    tagged = engine.image_version(image) if image else None
    return None if tagged is None or _base(tagged) in versions(engine.name) else tagged


def _base(version: str) -> str:
    """The release that 0.5.22.post1 corrects and 0.5.23rc0 comes before."""
    return re.split(r"rc|\.post", version)[0]


def _supported(name: str) -> tuple[Engine, ...]:
    engines: tuple[Engine, ...] = import_module(f"{__name__}.{name}.engine").ENGINES
    return engines
