"""What an engine's log says: why a rank died, and what a rank is doing. The rules are in failure_rules/*.yml.

A rule has these keys:
  id, failures   its name, and the numbers of the known failures in docs/diagnose.md
  pattern        regular expression that is looked for in one line
  weight         cause (default) | general (a cause, where no other rule matches the line) | consequence (how
                 the death of another rank looks from here) | note (worth a look, kills nothing)
  standing       true: it holds since the host was booted, so its time says nothing
  means, fix     after "rank 1 on node2:" and to be typed or changed by a person
  sample, source a real line, and where it is from; it is the rule's test
  counter        lines that the rule must not match
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_FOLDER = Path(__file__).parent / "failure_rules"
FAMILIES = ("driver", "rdma", "rendezvous", "weights", "running")
_LINE_LIMIT = 300


@dataclass(frozen=True)
class Rule:
    """One rule; the keys of its file, with the pattern compiled."""

    id: str
    failures: list[int]
    pattern: re.Pattern[str]
    means: str
    fix: str
    sample: str
    source: str
    weight: str = "cause"
    standing: bool = False
    counter: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Cause:
    """Why a rank died: in words, what to do next, and the log lines that say so.

    `echo` says that another rank died before.
    """

    reason: str
    hint: str
    lines: list[str]
    echo: bool


def _read(name: str) -> Any:
    return yaml.safe_load((_FOLDER / f"{name}.yml").read_text(encoding="utf-8"))


def _rules() -> tuple[Rule, ...]:
    entries = [entry for family in FAMILIES for entry in _read(family)]
    rules = [Rule(**{**entry, "pattern": re.compile(entry["pattern"])}) for entry in entries]
    return tuple(sorted(rules, key=lambda rule: rule.weight == "general"))


RULES = _rules()
_ENGINE_LOG = _read("engine_log")
ANY_ERROR = re.compile(_ENGINE_LOG["any_error"])
DYING = re.compile(_ENGINE_LOG["dying"])
_ARGUMENTS = re.compile(_ENGINE_LOG["arguments"])
_STAGES = [(re.compile(pattern), words) for pattern, words in _ENGINE_LOG["stages"]]


def match(line: str) -> Rule | None:
    """Return the rule for a line; a general one only where no other matches."""
    return next((rule for rule in RULES if rule.pattern.search(line)), None)


def find_cause(log: list[str]) -> Cause | None:
    """Return why the rank whose log this is died, by the first line that tells; None when no line does."""
    for line in log:
        rule = match(line)
        if rule and rule.weight != "note":
            return Cause(rule.means, rule.fix, _decisive(log, line), rule.weight == "consequence")
    for line in log:
        if ANY_ERROR.search(line):
            hint = "Read the whole log on that host, `docker logs`, from this line on."
            return Cause("the engine failed", hint, _decisive(log, line), False)
    return None


def doing(log: list[str]) -> str:
    """Return in a few words what a rank is doing, `starting` when its log does not tell."""
    for line in reversed(log):
        for pattern, words in _STAGES:
            found = pattern.search(line)
            if found:
                return str(words.format(*found.groups()))
    return "starting"


def shown(line: str) -> str:
    """Return a log line as it may be shown: short, and without the argument dump that holds the API keys."""
    return _ARGUMENTS.sub("server_args=...", line).strip()[:_LINE_LIMIT]


def _decisive(log: list[str], first: str) -> list[str]:
    """Return the first line that tells and at most two further ones that name an error."""
    lines = [first] + [line for line in log if ANY_ERROR.search(line)]
    return list(dict.fromkeys(shown(line) for line in lines))[:3]
