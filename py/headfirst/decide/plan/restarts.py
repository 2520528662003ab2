"""How the containers that run differ from those that are planned, and which settings keep what runs. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from headfirst.common.errors import InputError
from headfirst.common.untrusted import for_terminal
from headfirst.decide.cluster.settings import Role, ServiceSettings
from headfirst.decide.engines import arguments
from headfirst.decide.scrub import is_secret

CONFIG_LABEL = "headfirst.config"  # of a container: the SHA-256 of its configuration file
_TITLES = {"image_id": "the image of the same name", "env_file_sha256": "the file with the environment"}
_SHOWN = 120  # characters of a value

Spec = Mapping[str, Any]


@dataclass(frozen=True)
class Difference:
    """One part of a container's specification, as it runs and as it is planned; None: it has none."""

    field: str  # of the specification
    name: str  # of the flag, the variable, the label; else ""
    before: str | None
    after: str | None

    def __str__(self) -> str:
        if self.name == CONFIG_LABEL:
            return "the configuration file"
        name = _shown(self.name)
        title = name if self.field == "command" else _TITLES.get(self.field, f"{self.field} {name}").strip()
        if self.field in ("environment", *_TITLES):  # a value may be a secret, or is a digest
            return title
        if self.before is None or self.after is None:
            value = self.before or self.after or ""
            return f"{'without' if self.after is None else 'with'} {title} {_shown(value)}".strip()
        return f"{title} {_shown(self.before)} → {_shown(self.after)}"


def differences(running: Spec, planned: Spec) -> list[Difference]:
    """What differs between two specifications, as `container_spec.canonical` returns them."""
    before, after = dict(_parts(running)), dict(_parts(planned))
    return [
        Difference(*key, before.get(key), after.get(key))
        for key in dict.fromkeys((*before, *after))
        if before.get(key) != after.get(key)
    ]


def keeping(
    settings: ServiceSettings,
    role: Role | None,
    differences: Sequence[Difference],
    differ: Callable[[Mapping[str, Any]], Sequence[Difference]],
) -> list[str]:
    """The lines of the inventory that keep what runs, as far as settings can; `role`: of the replica.

    `differ` plans with other settings and returns what differs then; it raises InputError for settings that
    a plan refuses. A line is returned only where the plan that follows it differs less.
    """
    settings_kept: dict[str, Any] = {}
    left = set(differences)
    for difference in differences:
        present = settings.model_copy(update=settings_kept)
        tried = settings_kept | _kept(present, f"{role}_" if role else "", difference)
        try:
            type(settings).model_validate(settings.model_dump(exclude_unset=True) | tried)
            after = set(differ(tried)) if tried != settings_kept else left
        except (InputError, ValidationError):
            continue
        if after < left:
            settings_kept, left = tried, after
    return [f"{name}={_written(value)}" for name, value in settings_kept.items()]


def _kept(settings: ServiceSettings, prefix: str, difference: Difference) -> dict[str, Any]:
    """The settings that give a part of the container the value that it has; {} where no setting does."""
    if difference.before is None:
        return {}
    if difference.field == "command":
        name = f"{prefix}engine_args"
        return {name: [*getattr(settings, name), difference.name, *shlex.split(difference.before)]}
    if difference.field == "environment" and not is_secret(difference.name, difference.before):
        name = f"{prefix}engine_env"
        return {name: {**getattr(settings, name), difference.name: difference.before}}
    setting = {"shm_size": "shm_size", "image": "engine_image"}.get(difference.field)
    return {setting: difference.before} if setting else {}


def _written(value: Any) -> str:
    if isinstance(value, dict):
        value = [f"{name}={text}" for name, text in value.items()]
    return shlex.quote(shlex.join(value) if isinstance(value, list) else value)


def _parts(spec: Spec) -> Iterator[tuple[tuple[str, str], str]]:
    """The parts of a specification that differ by themselves, by field and name."""
    for field, value in spec.items():
        if field == "command" and isinstance(value, list):
            for flag, *values in arguments.each([str(word) for word in value]):
                yield (field, flag), shlex.join(values)
        elif isinstance(value, dict):
            for name, text in value.items():
                yield (field, str(name)), str(text)
        elif isinstance(value, list):
            for text in value:
                yield (field, str(text)), ""
        else:
            yield (field, ""), str(value)


def _shown(value: str) -> str:
    text = for_terminal(value).replace("\n", " ")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
