"""One node's lines and state → events: what rules know, and the first error that none knows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from headfirst.diagnose import rules
from headfirst.diagnose.rules import ConditionRule, LogRule
from headfirst.diagnose.types import Container, Event, Line, Node

# The kernel and the driver may speak of a failure a little before the rank's container starts to.
BEFORE_S = 60.0
# An unknown error counts when it came this long before the end.
CRASH_S = 120.0
_SIGNALS = {137: ", killed (signal 9)", 139: ", a segmentation fault", 143: ", told to end (signal 15)"}
LOG, KERNEL, DRIVER, PACKAGES, START, STATE = (
    "engine's log",
    "kernel's log",
    "NVIDIA driver",
    "package log",
    "container's start",
    "container's state",
)


def of_node(node: Node) -> list[Event]:
    """All events of a node's present run, one a rule, the earliest; by time."""
    container = node.container
    begin = (container.started_at or container.created_at) if container else node.now
    found = [*_matched(node, node.kernel, KERNEL, begin)]
    found += _matched(node, _at(begin, node.driver), DRIVER, begin)
    found += _matched(node, _at(begin, node.packages), PACKAGES, begin)
    if container:
        found += _matched(node, _at(begin, [container.error]), START, begin)
        found += _matched(node, container.log, LOG, begin)
        found += _ends(node, container, found)
        found += _tcp_instead_of_rdma(node, container)
    return _first_of_each(found)


def of_earlier_run(node: Node) -> list[Event]:
    """Events of the run before Docker restarted the container."""
    if node.container is None or not node.container.earlier:
        return []
    lines = node.container.earlier
    found = list(_matched(node, lines, LOG, lines[0].at))
    reasons = [event for event in found if event.weight != "note"]
    return _first_of_each(reasons) or unknown_error(node, lines, lines[-1].at)


def died_at(node: Node) -> float | None:
    """When a rank ended, or logged that it is about to; None for one that lives."""
    container = node.container
    if container is None:
        return None
    dying = rules.engine_log().dying
    last_words = next((line.at for line in container.log if dying.search(line.text)), None)
    if container.running or not container.finished_at:
        return last_words
    return min(last_words or container.finished_at, container.finished_at)


def event(node: Node, rule: ConditionRule, at: float, lines: Sequence[str] = (), **words: object) -> Event:
    """A condition that holds on a node, its words filled in."""
    return Event(
        at=at,
        rank=node.rank,
        host=node.host,
        rule=rule.id,
        failures=rule.failures,
        weight=rule.weight,
        means=rule.means.format(**words),
        fix=rule.fix.format(**words) if words else rule.fix,
        source=STATE,
        lines=[rules.shown(line) for line in lines],
    )


def unknown_error(node: Node, log: Sequence[Line], end: float) -> list[Event]:
    """The first error lines of the crash that ended at `end`, and the line of code above them."""
    any_error = rules.engine_log().any_error
    errors = [number for number, line in enumerate(log) if any_error.search(line.text)]
    crash = [number for number in errors if log[number].at >= end - CRASH_S] or errors
    if not crash:
        return []
    first = crash[0]
    # The line of code that a traceback ends with stands right above its exception.
    code = [log[number].text for number in range(max(0, first - 2), first)]
    texts = [*code, *(log[number].text for number in crash[:3])]
    words = {"inventory": "INVENTORY", "rank": node.rank}
    found = event(
        node, rules.conditions()["unknown-error"], log[first].at, list(dict.fromkeys(texts)), **words
    )
    return [found.model_copy(update={"source": LOG})]


def _ends(node: Node, container: Container, found: list[Event]) -> Iterable[Event]:
    """How the container ended, where no line of it has told why."""
    if container.oom_killed:
        yield event(node, rules.conditions()["container-oom"], container.finished_at)
        return
    end = died_at(node)
    told = any(one.weight in ("cause", "general") for one in found if one.source in (LOG, START, KERNEL))
    if end is None or told:
        return
    unknown = unknown_error(node, container.log, end)
    lost = [one.at for one in found if one.weight == "consequence" and one.source == LOG]
    if unknown and not (lost and min(lost) <= unknown[0].at):
        yield unknown[0]
    elif not lost and not container.running and container.exit_code:
        signal = _SIGNALS.get(container.exit_code, "")
        last = [line.text for line in container.log[-3:]]
        rule = rules.conditions()["rank-ended"]
        yield event(node, rule, container.finished_at, last, code=container.exit_code, signal=signal)


def _tcp_instead_of_rdma(node: Node, container: Container) -> Iterable[Event]:
    lines = [
        line for line in container.log if "via NET/Socket" in line.text or "NET/IB : No device" in line.text
    ]
    if lines and node.hcas:
        rule = rules.conditions()["rdma-unused"]
        yield event(node, rule, lines[0].at, [lines[0].text], cards=", ".join(node.hcas))


def _matched(node: Node, lines: Iterable[Line], source: str, begin: float) -> Iterator[Event]:
    for line in lines:
        rule = rules.match(line.text)
        if rule is None or (source == KERNEL and not _concerns(node, rule, line, begin)):
            continue
        yield Event(
            at=begin if rule.standing else line.at,
            rank=node.rank,
            host=node.host,
            rule=rule.id,
            failures=rule.failures,
            weight=rule.weight,
            means=rule.means,
            fix=rule.fix,
            source=source,
            lines=[rules.shown(line.text)],
        )


def _concerns(node: Node, rule: LogRule, line: Line, begin: float) -> bool:
    """Whether a line of the kernel is of this run, and not of some other container's memory."""
    if not rule.standing and line.at < begin - BEFORE_S:
        return False
    if rule.id != "kernel-oom" or "docker" not in line.text:
        return True
    return node.container is not None and node.container.id[:32] in line.text


def _at(at: float, texts: Iterable[str]) -> list[Line]:
    """What has no time of its own, as of the start of the run."""
    return [Line(at, text) for text in texts]


def _first_of_each(events: Iterable[Event]) -> list[Event]:
    first: dict[str, Event] = {}
    for one in sorted(events, key=lambda one: one.at):
        first.setdefault(one.rule, one)
    return list(first.values())
