"""The rules of failures as data: what a line or a state means, and what to change.

They lie in the collection (plugins/plugin_utils/failure_rules); `deploy up` reads the same while it waits.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Literal, NamedTuple

import yaml
from pydantic import BaseModel, ConfigDict

from headfirst.collection import collection_root

Weight = Literal["cause", "general", "mismatch", "hang", "consequence", "note"]
FAMILIES = ("driver", "rdma", "rendezvous", "weights", "running")
_LINE_LIMIT = 300


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LogRule(_Frozen):
    """A line and its meaning; the keys are told in plugins/plugin_utils/engine_log_rules.py."""

    id: str
    failures: list[int]
    pattern: re.Pattern[str]
    weight: Literal["cause", "general", "consequence", "note"] = "cause"
    standing: bool = False
    means: str
    fix: str
    sample: str
    source: str
    counter: list[str] = []


class ConditionRule(_Frozen):
    """A state of the ranks and its meaning; `means` and `fix` may hold {words} that are filled in."""

    id: str
    failures: list[int]
    weight: Weight
    means: str
    fix: str


class EngineLog(NamedTuple):
    """What else is known of the engine's log."""

    any_error: re.Pattern[str]
    dying: re.Pattern[str]
    arguments: re.Pattern[str]
    stages: tuple[tuple[re.Pattern[str], str], ...]


@cache
def log_rules() -> tuple[LogRule, ...]:
    """All rules over lines, general ones last."""
    rules = [LogRule.model_validate(entry) for family in FAMILIES for entry in _read(family)]
    return tuple(sorted(rules, key=lambda rule: rule.weight == "general"))


@cache
def conditions() -> dict[str, ConditionRule]:
    """All rules over states, by id."""
    rules = [ConditionRule.model_validate(entry) for entry in _read("conditions")]
    return {rule.id: rule for rule in rules}


@cache
def engine_log() -> EngineLog:
    """Patterns of the engine's log that are no failures."""
    data = _read("engine_log")
    stages = tuple((re.compile(pattern), words) for pattern, words in data["stages"])
    any_error, dying, arguments = (re.compile(data[key]) for key in ("any_error", "dying", "arguments"))
    return EngineLog(any_error, dying, arguments, stages)


def match(line: str) -> LogRule | None:
    """The rule for a line; a general one only where no other matches."""
    return next((rule for rule in log_rules() if rule.pattern.search(line)), None)


def shown(line: str) -> str:
    """A line as it may be shown: short, and without the dump of arguments that holds the API key."""
    return engine_log().arguments.sub("server_args=...", line).strip()[:_LINE_LIMIT]


def _read(name: str) -> Any:
    path = collection_root() / "plugins" / "plugin_utils" / "failure_rules" / f"{name}.yml"
    return yaml.safe_load(path.read_text(encoding="utf-8"))
