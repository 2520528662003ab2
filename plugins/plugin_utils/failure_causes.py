"""Where a failure began: the symptoms in the ranks' logs and states, and the one that the others follow from.

`deploy up` (rank_watch.py), `deploy events` and `deploy diagnose` name the cause that `decisive` returns.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from ansible_collections.headfirst.serving.plugins.module_utils import docker_api
from ansible_collections.headfirst.serving.plugins.plugin_utils.engine_log_rules import (
    LINE_CHARS,
    LogRule,
    Profile,
    Weight,
    conditions,
)

# Clocks of hosts are no closer than this.
SLACK_S = 5.0
# The lines of one crash: a known cause among them goes first, and only an error among them is its reason.
CRASH_S = 120.0
_QUOTED_CHARS = 160
_UNDERLINE = re.compile(r" [~^]+$")
_FIRM = ("cause", "general")
_SIGNALS = {
    137: ", killed (signal 9), mostly for lack of memory",
    139: ", a segmentation fault",
    143: ", stopped by a signal (15)",
}
_STAMP = re.compile(docker_api.TIME.pattern + " ?")


class Line(NamedTuple):
    """One line of a log; `at` is in seconds since 1970 by the controller's clock."""

    at: float
    text: str


@dataclass(frozen=True)
class Symptom:
    """What a line of a log, or a state, shows of a rank. `at` as in Line; the others as in its rule."""

    at: float
    rule: str
    failures: list[int]
    weight: Weight
    means: str
    fix: str
    lines: list[str]


class Weighed(Protocol):
    """What `decisive` reads of a symptom."""

    @property
    def at(self) -> float:
        """Seconds since 1970 by the controller's clock."""

    @property
    def weight(self) -> Weight:
        """As in the rules."""


AnySymptom = TypeVar("AnySymptom", bound=Weighed)


def decisive(symptoms: Collection[AnySymptom]) -> AnySymptom | None:
    """Return the symptom of any rank that the others follow from; None where there are only notes.

    Of the causes and general errors within CRASH_S of the first one, the earliest cause counts; else a
    mismatch. Without either, it is the first general error, unless ranks had been lost long before it; then a
    later cause, or the loss. Last come the loss of ranks and a hang.
    """
    firm = [symptom for symptom in symptoms if symptom.weight in _FIRM]
    lost = _earliest(symptoms, "consequence")
    differs = _earliest(symptoms, "mismatch")
    began = min((symptom.at for symptom in firm), default=0.0)
    near = [symptom for symptom in firm if symptom.at <= began + CRASH_S]
    first = min(near, key=lambda symptom: (symptom.weight != "cause", symptom.at), default=None)
    if first and first.weight == "cause":
        return first
    if differs:  # what no rule explains, a rank that is unlike the others may
        return differs
    if first and lost and lost.at < first.at - SLACK_S:
        # A rank's own error, this long after it lost the others, is their doing; a known cause is not.
        return _earliest(firm, "cause") or lost
    return first or lost or _earliest(symptoms, "hang")


def _earliest(symptoms: Iterable[AnySymptom], weight: Weight) -> AnySymptom | None:
    candidates = [symptom for symptom in symptoms if symptom.weight == weight]
    return min(candidates, key=lambda symptom: symptom.at, default=None)


def stamped(log: Iterable[str], ahead_s: float, unstamped_at: float) -> list[Line]:
    """Return the lines of `docker logs --timestamps` of a node whose clock is `ahead_s` seconds ahead.

    A line without a time has that of the line before; the first one has `unstamped_at`.
    """
    lines = []
    at = unstamped_at
    for text in log:
        stamp = _STAMP.match(text)
        if stamp:
            at = docker_api.seconds(stamp[0].strip()) - ahead_s
        lines.append(Line(at, text[stamp.end() if stamp else 0 :][:LINE_CHARS]))
    return lines


def of_rule(log: Profile, rule: LogRule, line: Line) -> Symptom:
    """Return the symptom of a line that the rule matches."""
    means, fix = rule.words(log.plain(line.text), log.facts)
    return Symptom(line.at, rule.id, rule.failures, rule.weight, means, fix, [log.shown(line.text)])


def in_log(log: Profile, lines: Iterable[Line]) -> list[Symptom]:
    """Return the symptoms in a rank's log by time, the first of each rule."""
    first: dict[str, Symptom] = {}
    for line in sorted(lines, key=lambda line: line.at):
        rule = log.match(line.text)
        if rule is not None and rule.id not in first:
            first[rule.id] = of_rule(log, rule, line)
    return list(first.values())


def state(condition: str, at: float, lines: Sequence[str] = (), **words: object) -> Symptom:
    """Return the symptom of a state in failure_rules/conditions.yml, its words filled in."""
    rule = conditions()[condition]
    fix = rule.fix.format(**words) if words else rule.fix
    return Symptom(at, rule.id, rule.failures, rule.weight, rule.means.format(**words), fix, list(lines))


def unknown_error(log: Profile, lines: Sequence[Line], end: float, rank: int) -> Symptom | None:
    """Return the first error lines of the crash that ended at `end`, with the line of code above them.

    None where a rank was lost before them, or there are none that no rule matches.
    """
    errors = [
        number
        for number, line in enumerate(lines)
        if log.any_error.search(log.plain(line.text)) and not log.match(line.text)
    ]
    crash = [number for number in errors if lines[number].at >= end - CRASH_S] or errors
    if not crash:
        return None
    first = crash[0]
    for line in lines[:first]:
        rule = log.match(line.text) if line.at >= lines[first].at - CRASH_S else None
        if rule and rule.weight == "consequence":
            return None
    # The line of code that a traceback ends with is right above its exception, and may be underlined.
    code = [line.text for line in lines[max(0, first - 3) : first] if not _UNDERLINE.search(line.text)][-2:]
    texts = dict.fromkeys(log.shown(text) for text in [*code, *(lines[number].text for number in crash[:3])])
    text = log.plain(lines[first].text)
    match = log.any_error.search(text)
    error = text[match.start() if match else 0 :].strip()[:_QUOTED_CHARS]
    return state("unknown-error", lines[first].at, list(texts), rank=rank, error=error)


def died_at(log: Profile, lines: Iterable[Line], finished_at: float | None = None) -> float | None:
    """Return when a rank logged that it is about to end, or its container ended; None while it lives."""
    last_words = next((line.at for line in lines if log.dying.search(line.text)), None)
    if last_words is None or finished_at is None:
        return finished_at if last_words is None else last_words
    return min(last_words, finished_at)


def end_of(
    log: Profile,
    lines: Sequence[Line],
    symptoms: Collection[Weighed],
    *,
    rank: int,
    ended: float | None,
    exit_code: int | None,
    oom_killed: bool = False,
) -> Symptom | None:
    """Return how a rank ended where none of its `symptoms` is a reason.

    `ended` is when it ended, or logged its end; None while it lives. `exit_code` is None while its container
    runs.
    """
    if oom_killed:
        return state("container-oom", ended or 0.0)
    if ended is None or any(symptom.weight in _FIRM for symptom in symptoms):
        return None
    unknown = unknown_error(log, lines, ended, rank)
    if unknown or exit_code is None or any(symptom.weight == "consequence" for symptom in symptoms):
        return unknown
    last = [log.shown(line.text) for line in lines[-3:]]
    return state("rank-ended", ended, last, code=exit_code, signal=_SIGNALS.get(exit_code, ""))
