"""The engine whose ranks are diagnosed: what its log reports, its flags, how it is asked for its health."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ansible_collections.headfirst.serving.plugins.plugin_utils.engine_log_rules import Profile, profile

from headfirst.decide.engines import access
from headfirst.decide.engines.base import Diagnostics, Engine, Metrics, ReadinessProbe
from headfirst.decide.scrub import MASK


@dataclass(frozen=True)
class Subject:
    """`model` is its name in the API, and `api_key` what the API needs."""

    log: Profile
    about: Diagnostics
    metrics: Metrics
    readiness: ReadinessProbe
    model: str = ""
    api_key: str = ""


def subject(engine: Engine, readiness: ReadinessProbe, model: str = "", api_key: str = "") -> Subject:
    """What a diagnosis needs of an engine."""
    return Subject(profile(engine.log()), engine.diagnostics, engine.metrics, readiness, model, api_key)


_FLAG = re.compile(r"--?[a-zA-Z]")  # and not a negative number


def values(argv: Sequence[str]) -> dict[str, str]:
    """Flag → its values, joined by a space; what comes before the first flag is `command`."""
    flags: dict[str, str] = {}
    flag = "command"
    for word in access.unchecked(argv):
        if _FLAG.match(word):
            flag, _, value = word.partition("=")
            flags[flag] = value
        else:
            flags[flag] = f"{flags.get(flag, '')} {word}".strip()
    return flags


def masked(argv: Sequence[str], secret: Collection[str]) -> tuple[str, ...]:
    """The words with the values of the flags in `secret` hidden."""
    shown, hide = [], False
    for word in argv:
        flag, equals, _ = word.partition("=")
        if _FLAG.match(word):
            hide = flag in secret
            shown.append(f"{flag}={MASK}" if hide and equals else word)
        else:
            shown.append(MASK if hide else word)
    return tuple(shown)
