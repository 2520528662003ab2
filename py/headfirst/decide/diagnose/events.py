"""One node's lines and state → events: what rules match, and the first error that none matches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from ansible_collections.headfirst.serving.plugins.plugin_utils.engine_log_rules import Rule

from headfirst.decide.diagnose.rules import Weight, conditions
from headfirst.decide.diagnose.subject import Subject
from headfirst.decide.diagnose.types import Container, Event, Line, Node

# The kernel and the driver may speak of a failure a little before the rank's container starts to.
BEFORE_S = 60.0
# An unknown error counts when it came this long before the end.
CRASH_S = 120.0
_SIGNALS = {137: ", killed (signal 9)", 139: ", a segmentation fault", 143: ", stopped by a signal (15)"}
LOG, KERNEL, DRIVER, PACKAGES, START, STATE = (
    "engine's log",
    "kernel's log",
    "NVIDIA driver",
    "package log",
    "container's start",
    "container's state",
)


def of_node(node: Node, subject: Subject) -> list[Event]:
    """All events of a node's present run, one a rule, the earliest; by time."""
    container = node.container
    begin = (container.started_at or container.created_at) if container else node.now
    found = [*_matched(node, subject, node.kernel, KERNEL, begin)]
    found += _matched(node, subject, _at(begin, node.driver), DRIVER, begin)
    found += _matched(node, subject, _at(begin, node.packages), PACKAGES, begin)
    if container:
        found += _matched(node, subject, _at(begin, [container.error]), START, begin)
        found += _matched(node, subject, container.log, LOG, begin)
        found += _ends(node, subject, container, found)
        found += _tcp_instead_of_rdma(node, subject, container)
    return _first_of_each(found)


def of_earlier_run(node: Node, subject: Subject) -> list[Event]:
    """Events of the run before Docker restarted the container."""
    if node.container is None or not node.container.earlier:
        return []
    lines = node.container.earlier
    found = list(_matched(node, subject, lines, LOG, lines[0].at))
    reasons = [event for event in found if event.weight != "note"]
    return _first_of_each(reasons) or unknown_error(node, subject, lines, lines[-1].at)


def died_at(node: Node, subject: Subject) -> float | None:
    """When a rank ended, or logged that it is about to; None for one that lives."""
    container = node.container
    if container is None:
        return None
    dying = subject.log.dying
    last_words = next((line.at for line in container.log if dying.search(line.text)), None)
    if container.running or not container.finished_at:
        return last_words
    return min(last_words or container.finished_at, container.finished_at)


def event(
    node: Node, subject: Subject, condition: str, at: float, lines: Sequence[str] = (), **words: object
) -> Event:
    """The rule about a state that holds on a node, its words filled in."""
    rule = conditions()[condition]
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
        lines=[subject.log.shown(line) for line in lines],
    )


def unknown_error(node: Node, subject: Subject, log: Sequence[Line], end: float) -> list[Event]:
    """The first error lines of the crash that ended at `end`, and the line of code above them."""
    errors = [number for number, line in enumerate(log) if subject.log.any_error.search(line.text)]
    crash = [number for number in errors if log[number].at >= end - CRASH_S] or errors
    if not crash:
        return []
    first = crash[0]
    # The line of code that a traceback ends with is right above its exception.
    code = [log[number].text for number in range(max(0, first - 2), first)]
    texts = [*code, *(log[number].text for number in crash[:3])]
    words = {"inventory": "INVENTORY", "rank": node.rank}
    found = event(node, subject, "unknown-error", log[first].at, list(dict.fromkeys(texts)), **words)
    return [found.model_copy(update={"source": LOG})]


def _ends(node: Node, subject: Subject, container: Container, found: list[Event]) -> Iterable[Event]:
    """How the container ended, where no line of its log has the reason."""
    if container.oom_killed:
        yield event(node, subject, "container-oom", container.finished_at)
        return
    end = died_at(node, subject)
    told = any(one.weight in ("cause", "general") for one in found if one.source in (LOG, START, KERNEL))
    if end is None or told:
        return
    unknown = unknown_error(node, subject, container.log, end)
    lost = [one.at for one in found if one.weight == "consequence" and one.source == LOG]
    if unknown and not (lost and min(lost) <= unknown[0].at):
        yield unknown[0]
    elif not lost and not container.running and container.exit_code:
        signal = _SIGNALS.get(container.exit_code, "")
        last = [line.text for line in container.log[-3:]]
        words = {"code": container.exit_code, "signal": signal}
        yield event(node, subject, "rank-ended", container.finished_at, last, **words)


def _tcp_instead_of_rdma(node: Node, subject: Subject, container: Container) -> Iterable[Event]:
    lines = [
        line for line in container.log if "via NET/Socket" in line.text or "NET/IB : No device" in line.text
    ]
    if lines and node.hcas:
        cards = ", ".join(node.hcas)
        yield event(node, subject, "rdma-unused", lines[0].at, [lines[0].text], cards=cards)


def _matched(
    node: Node, subject: Subject, lines: Iterable[Line], source: str, begin: float
) -> Iterator[Event]:
    for line in lines:
        rule = subject.log.match(line.text)
        if rule is None or (source == KERNEL and not _concerns(node, rule, line, begin)):
            continue
        yield Event(
            at=begin if rule.standing else line.at,
            rank=node.rank,
            host=node.host,
            rule=rule.id,
            failures=rule.failures,
            weight=cast(Weight, rule.weight),
            means=rule.means,
            fix=rule.fix,
            source=source,
            lines=[subject.log.shown(line.text)],
        )


def _concerns(node: Node, rule: Rule, line: Line, begin: float) -> bool:
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
