"""Log files without hosts: the few lines that count, as nodes, so that decide.py ranks what they show."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, cached_property
from itertools import chain

from ahocorasick import Automaton
from ansible_collections.headfirst.serving.plugins.plugin_utils.engine_log_rules import (
    LINE_CHARS,
    NEVER,
    LogRule,
    Profile,
    conditions,
    profile,
)
from ansible_collections.headfirst.serving.plugins.plugin_utils.failure_causes import Line

from headfirst.decide import engines
from headfirst.decide.diagnose import decide
from headfirst.decide.diagnose.log_lines import LogLine, log_line
from headfirst.decide.diagnose.log_words import index_of
from headfirst.decide.diagnose.subject import Subject, subject
from headfirst.decide.diagnose.types import Diagnosis, Event, HttpAnswer, NodeFacts, RankContainer
from headfirst.decide.scrub import without_tokens

# Lines that differ only in digits, and in letters that hexadecimal numbers have, count as alike.
_ALIKE = bytes(48 if chr(byte) in "123456789abcdefABCDEF" else byte for byte in range(256))
_REPEATS = 64  # of lines alike that are kept
_MOST_ALIKE = 40_000
_LINE_BYTES = LINE_CHARS + 300  # with what Docker and others print before it
_ABOVE = 3  # lines above an error that explain it
_KEPT = 5_000  # of a file the first ones, and the last ones
_POSITION_S = 0.01  # between lines without a time, for the ranking
_COLOUR = re.compile(rb"\x1b\[[0-9;]*m")
_REQUEST = re.compile(r"prompt: |GenerateReqInput\(")  # what a user has written follows
# What any_error matches: _ERROR, and an error line of glog.
_ERROR = re.compile(r"rror|xception|what\(\)")
_GLOG = re.compile(r"E\d{4,8} \d\d:\d\d:")
_AT_REQUEST, _AT_ERROR = 0, 1  # their places in the index


class _QuickProfile(Profile):
    def match(self, line: str) -> LogRule | None:
        """As Profile.match."""
        text = self.plain(line)
        places = sorted({place for _, places in self._places.iter(text) for place in places})
        return next((self.rules[place] for place in places if self.rules[place].pattern.search(text)), None)

    @cached_property
    def _places(self) -> Automaton:
        return index_of([rule.pattern for rule in self.rules])


class LogFile:
    """A file that is read in blocks of whole lines, of which the few that may count are kept."""

    def __init__(self, name: str) -> None:
        self.name, self.lines = name, 0
        self.engines: Counter[str] = Counter()  # how often each is named
        self._first: list[tuple[int, bytes]] = []
        self._last: deque[tuple[int, bytes]] = deque(maxlen=_KEPT)
        self._next = 1  # the number of the first line that may still be kept
        self._repeats: dict[bytes, int] = {}
        self._above: list[bytes] = []  # the end of the block before

    def block(self, block: bytes) -> None:
        """Read more lines."""
        block = _COLOUR.sub(b"", block) if b"\x1b" in block else block
        for name in () if self.engines else engines.names():
            engine_lines = _subject(name).log.named.findall(block.decode("ascii", "replace"))
            self.engines.update([name] * len(engine_lines))
        lines = [*self._above, *block.removesuffix(b"\n").split(b"\n")]
        for index, above in sorted(_explained(block.decode("latin-1")).items()):
            alike = lines[len(self._above) + index].translate(_ALIKE)
            self._repeats[alike] = repeats = self._repeats.get(alike, 0) + 1
            if repeats <= _REPEATS:
                self._keep(lines, len(self._above) + index, above)
        if len(self._repeats) > _MOST_ALIKE:
            self._repeats.clear()
        self.lines += len(lines) - len(self._above)
        self._above = lines[-_ABOVE:]

    def kept(self) -> dict[str, list[tuple[int, LogLine]]]:
        """The lines that may count, by source, each with its number."""
        sources: dict[str, list[tuple[int, LogLine]]] = {}
        lines = {self.lines: self._above[-1], **dict([*self._first, *self._last])}
        for number, raw in sorted(lines.items()):
            line = log_line(raw, LINE_CHARS)
            sources.setdefault(line.source, []).append((number, line))
        return sources

    def _keep(self, lines: Sequence[bytes], index: int, above: int) -> None:
        line_buffer = self._first if len(self._first) < 2 * _KEPT else self._last
        first = self.lines - len(self._above) + 1
        for at in range(max(0, index - above, self._next - first), index + 1):
            line_buffer.append((first + at, lines[at]))
        self._next = first + index + 1


def diagnose(files: Sequence[LogFile]) -> Diagnosis:
    """Where it began, over all files. Where no line names an engine, the rules of each are tried."""
    named = sum((file.engines for file in files), Counter()).most_common(1)
    names = [named[0][0]] if named else engines.names()
    diagnoses = {engines.get(name).title: _diagnose(files, _subject(name)) for name in names}
    decisive = [one for one in diagnoses.values() if one.decisive]
    causes = [one for one in decisive if one.decisive and one.decisive.weight == "cause"]
    first = (causes or decisive or [*diagnoses.values()])[0]
    if first.decisive is None:
        return first
    rule, events = first.decisive.rule, {title: one.decisive for title, one in diagnoses.items()}
    fixes = {title: event.fix for title, event in events.items() if event and event.rule == rule}
    if len(set(fixes.values())) == 1:
        return first
    fix = " ".join(f"{title}: {fix}" for title, fix in fixes.items())
    return first.model_copy(update={"decisive": first.decisive.model_copy(update={"fix": fix})})


def _diagnose(files: Sequence[LogFile], of: Subject) -> Diagnosis:
    sources = [(file, source, lines) for file in files for source, lines in file.kept().items()]
    dated = next((line for *_, lines in sources for _, line in lines if line.clock == "local"), None)
    streams = [
        (file, source, [(number, line.in_year_of(dated)) for number, line in lines])
        for file, source, lines in sources
    ]
    clocks = [{line.clock for _, line in lines} - {""} for _, _, lines in streams]
    by_time = all(clocks) and len(set().union(*clocks)) == 1
    logs: list[list[Line]] = []
    places = {}
    for file, source, lines in streams:
        log: list[Line] = []
        rank, at = "", next((line.at for _, line in lines if line.clock), 0.0)
        for number, line in lines:
            rank, at = (line.rank, line.at) if line.clock else (line.rank or rank, at)
            moment = at if by_time else (number - file.lines) * _POSITION_S
            # No two are alike, so that the line of an event is found.
            log.append(Line(moment + len(log) * 1e-5, line.text))
            places[len(logs), log[-1].at] = (number, " ".join(filter(None, (source, rank))))
        logs.append(log)
    outcomes = {_outcome(log, of) for log in logs}
    serves = "serves" in outcomes and "fails" not in outcomes
    nodes = [_node(rank, file, logs[rank], of, serves) for rank, (file, _, _) in enumerate(streams)]
    diagnosis = decide.diagnose(nodes, of)

    def placed(event: Event) -> Event:
        line, who = places.get((event.rank, event.at)) or places[event.rank, logs[event.rank][-1].at]
        rule = conditions(by_hand=True).get(event.rule)
        texts = {"means": event.means, "fix": rule.fix if rule else event.fix, "host": who}
        shown = {name: without_tokens(text) for name, text in texts.items()}
        lines = [without_tokens(text) for text in event.lines]
        return event.model_copy(update={**shown, "lines": lines, "file": event.host, "line": line})

    return Diagnosis(
        ready=diagnosis.ready,
        decisive=diagnosis.decisive and placed(diagnosis.decisive),
        then=[placed(event) for event in diagnosis.then],
        notes=[placed(event) for event in diagnosis.notes],
        nodes=diagnosis.nodes,
    )


def _outcome(log: Sequence[Line], of: Subject) -> str:
    """How a log ends: an engine "serves", a rank "fails", or ""."""
    outcome = ""
    for line in log:
        rule = of.log.match(line.text)
        if of.log.ready.search(line.text):
            outcome = "serves"
        elif of.log.dying.search(line.text) or (rule and rule.weight in ("cause", "consequence")):
            outcome = "fails"
    return outcome


def _node(rank: int, file: LogFile, log: Sequence[Line], of: Subject, serves: bool) -> NodeFacts:
    """A log as that of a rank, which has ended where it names an error and nothing serves."""
    failed = any(of.log.any_error.search(of.log.plain(line.text)) for line in log)
    container = RankContainer(
        status="1 line" if file.lines == 1 else f"{file.lines:,} lines",
        running=serves or not failed,
        created_at=log[0].at,
        started_at=log[0].at,
        finished_at=log[-1].at,
        log=tuple(sorted(log)),
    )
    health = HttpAnswer(200, "") if serves else None
    return NodeFacts(rank, file.name, now=log[-1].at, container=container, health=health)


@cache
def _subject(name: str) -> Subject:
    engine = engines.get(name)
    log = _QuickProfile(**vars(profile(engine.log(), by_hand=True)))
    return replace(subject(engine, engine.readiness("chat")), log=log)


def _explained(block: str) -> dict[int, int]:
    """The lines of a block that a rule may match, by index: how many lines before explain each."""
    starts = [0, *(newline.end() for newline in re.finditer("\n", block))]
    times = ((match.start(), (_AT_ERROR,)) for match in _GLOG.finditer(block))
    line_counts: dict[int, int] = {}
    passed: set[int] = set()
    for at, places in chain(times, _index().iter(block)):
        index = bisect_right(starts, at) - 1
        start = starts[index]
        if index in passed or (at - start >= _LINE_BYTES and not block.startswith("{", start)):
            continue
        if places[0] == _AT_REQUEST:
            passed.add(index)
        elif places[0] == _AT_ERROR:
            line_counts[index] = _ABOVE
        else:
            line_counts.setdefault(index, 0)
    return line_counts


@cache
def _index() -> Automaton:
    logs = [_subject(name).log for name in engines.names()]
    patterns = [rule.pattern for log in logs for rule in log.rules]
    patterns += [pattern for log in logs for pattern, _ in log.stages]
    patterns += [pattern for log in logs for pattern in (log.dying, log.ready, log.joining, log.joined)]
    patterns = [pattern for pattern in patterns if pattern.pattern != NEVER]
    return index_of([_REQUEST, _ERROR, *patterns], shortest=True)
