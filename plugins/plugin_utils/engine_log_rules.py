"""What an engine's log reports: why a rank died, and what a rank is doing.

A log profile is an engine's own data with the generic data of failure_rules/*.yml. Its keys, all optional:
  any_error  pattern of a line that names an error: the exception that ended a traceback
  dying      pattern of a line after which the rank ends, though its container may still run
  arguments  pattern of the part of a line that is never shown: a dump of all arguments, which holds the key
  ready      pattern of the line that ends the start
  named      pattern of what only this engine's logs have: its name, an option of its own
  joining, joined        patterns of the lines around the rendezvous of the ranks
  capturing, captured    patterns of the lines around the capture of CUDA graphs
  stages     pairs of a pattern and what a rank does after such a line; {0}, {1} are the groups of the pattern
  figures    patterns whose group is a number that rank 0 measured (py/headfirst.decide.diagnose.measured.py)
  rules      failures. A rule with the id of a generic one replaces the keys that it has
  producers  of the rules that name none, and replace none

A rule has these keys:
  id, failures   its name, and the numbers of the known failures in docs/diagnose.md
  pattern        regular expression that is searched in one line
  weight         cause (default) | general (a cause, where no other rule matches the line or a line of the
                 same crash) | consequence (how the death of another rank appears here) | note (worth a check,
                 kills nothing)
  standing       true: it holds since the host was booted, so its time means nothing
  means, fix     after "rank 1 on node2:" and to be typed or changed by a person. {name} is a named group of
                 the pattern or a fact of the rank (FACTS); a part in [brackets] is left out without it. Of
                 <A|B> a person without an inventory reads B, what Docker and the engine call A; by_hand of
                 engine_log.yml has what is in many rules
  producers      programs that write the line, and their versions (2.10–2.27, 0.8–); tests/engines finds the
                 pattern's words in their packages
  source         a public report of the line, where no package has its words

Lines that a rule must match, or must not, are its tests: tests/unit/data/failure_lines.yml.

conditions.yml has the rules about states of the ranks, which no line of a log shows: id, failures, weight
(also mismatch or hang), means and fix. {words} in the last two are filled in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml

_FOLDER = Path(__file__).parent / "failure_rules"
FAMILIES = ("driver", "rdma", "rendezvous", "weights", "running")
_LINE_LIMIT = 300
FACTS = ("driver", "cuda")  # versions of the host's driver and of the image's CUDA
LINE_CHARS = 2000  # searched of a line: the time of some patterns grows with the cube of its length
_PATTERNS = (
    *("any_error", "named", "dying", "arguments", "ready", "joining", "joined", "capturing", "captured"),
)
NEVER = "(?!)"  # of a key that a profile lacks
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_VALUE = re.compile(r"[\w .,:/@%+=~()-]{1,100}", re.ASCII)  # nothing that a shell reads
_OPTIONAL = re.compile(r"\[([^\[\]]*\{[^\[\]]*)\]")
_WAYS = re.compile(r"<([^<>|]*)\|([^<>|]*)>")
_NAME = re.compile(r"\{(\w+)\}")
Weight = Literal["cause", "general", "mismatch", "hang", "consequence", "note"]


@dataclass(frozen=True)
class LogRule:
    """One rule; the keys of its file, with the pattern compiled."""

    id: str
    failures: list[int]
    pattern: re.Pattern[str]
    means: str
    fix: str
    producers: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    weight: Weight = "cause"
    standing: bool = False

    def words(self, line: str, facts: Mapping[str, str]) -> tuple[str, str]:
        """Return `means` and `fix` with the values of a line; what is not of _VALUE counts as missing."""
        match = self.pattern.search(line)
        words = {**facts, **(match.groupdict() if match else {})}
        values = {name: value for name, value in words.items() if value and _VALUE.fullmatch(value)}
        return _filled(self.means, values), _filled(self.fix, values)


@dataclass(frozen=True)
class ConditionRule:
    """A rule about a state of the ranks; the keys of its entry in conditions.yml."""

    id: str
    failures: list[int]
    weight: Weight
    means: str
    fix: str


@dataclass(frozen=True)
class Profile:
    """A log profile, its patterns compiled. The engine's stages and rules come first, general rules last.

    `facts` are those that are known of the rank whose log is read.
    """

    any_error: re.Pattern[str]
    named: re.Pattern[str]
    dying: re.Pattern[str]
    arguments: re.Pattern[str]
    ready: re.Pattern[str]
    joining: re.Pattern[str]
    joined: re.Pattern[str]
    capturing: re.Pattern[str]
    captured: re.Pattern[str]
    stages: tuple[tuple[re.Pattern[str], str], ...]
    rules: tuple[LogRule, ...]
    facts: Mapping[str, str] = field(default_factory=dict)

    def match(self, line: str) -> LogRule | None:
        """Return the rule for a line; a general one only where no other matches."""
        text = self.plain(line)
        return next((rule for rule in self.rules if rule.pattern.search(text)), None)

    def doing(self, log: Sequence[str]) -> str:
        """Return in a few words what a rank does, "" where its log does not show it."""
        for line in reversed(log):
            for pattern, words in self.stages:
                match = pattern.search(line[:LINE_CHARS])
                if match:
                    return words.format(*match.groups())
        return ""

    def plain(self, line: str) -> str:
        """Return what is searched of a line: no colours, and no dump of arguments."""
        return self.arguments.sub("...", _COLOUR.sub("", line[:LINE_CHARS]))

    def shown(self, line: str) -> str:
        """Return a log line as it may be shown: plain and short."""
        return self.plain(line).strip()[:_LINE_LIMIT]


def profile(specific: Mapping[str, Any], *, by_hand: bool = False) -> Profile:
    """Return the profile of an engine, given what its log.yml has; an empty mapping gives the generic one.

    `by_hand`: for a person without an inventory.
    """
    generic = _read("engine_log")
    data = {**generic, **specific}
    patterns = {key: re.compile(data.get(key, NEVER)) for key in _PATTERNS}
    stages = [*specific.get("stages", ()), *generic["stages"]]
    return Profile(
        **patterns,
        stages=tuple((re.compile(pattern), words) for pattern, words in stages),
        rules=_rules(specific.get("rules", ()), specific.get("producers", {}), by_hand=by_hand),
    )


def _filled(text: str, values: Mapping[str, str]) -> str:
    text = _OPTIONAL.sub(lambda part: part[1] if {*_NAME.findall(part[1])} <= values.keys() else "", text)
    return _NAME.sub(lambda name: values.get(name[1], name[1].upper()), text)


def _typed(entry: Mapping[str, Any], *, by_hand: bool) -> Mapping[str, Any]:
    fix = _WAYS.sub(r"\2" if by_hand else r"\1", entry["fix"])
    for pattern, words in _read("engine_log")["by_hand"] if by_hand else ():
        fix = re.sub(pattern, words, fix)
    return {**entry, "fix": fix}


def _rules(
    specific: Iterable[Mapping[str, Any]], producers: Mapping[str, str], *, by_hand: bool
) -> tuple[LogRule, ...]:
    generic = {entry["id"]: entry for family in FAMILIES for entry in _read(family)}
    first = {
        entry["id"]: {**generic.get(entry["id"], {"producers": producers}), **entry} for entry in specific
    }
    entries = [*first.values(), *(entry for id, entry in generic.items() if id not in first)]
    typed = (_typed(entry, by_hand=by_hand) for entry in entries)
    rules = [LogRule(**{**entry, "pattern": re.compile(entry["pattern"])}) for entry in typed]
    return tuple(sorted(rules, key=lambda rule: rule.weight == "general"))


@cache
def conditions(*, by_hand: bool = False) -> dict[str, ConditionRule]:
    """Return all rules about states of the ranks, by id."""
    return {entry["id"]: ConditionRule(**_typed(entry, by_hand=by_hand)) for entry in _read("conditions")}


@cache
def _read(name: str) -> Any:
    return yaml.safe_load((_FOLDER / f"{name}.yml").read_text(encoding="utf-8"))
