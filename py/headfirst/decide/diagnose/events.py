"""One node's lines and state → events: what rules match, and the first error that none matches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ansible_collections.headfirst.serving.plugins.plugin_utils import failure_causes as causes
from ansible_collections.headfirst.serving.plugins.plugin_utils.engine_log_rules import LogRule
from ansible_collections.headfirst.serving.plugins.plugin_utils.failure_causes import Line, Symptom

from headfirst.decide.diagnose.subject import Subject
from headfirst.decide.diagnose.types import Event, NodeFacts, RankContainer

# The kernel and the driver may speak of a failure a little before the rank's container starts to.
BEFORE_S = 60.0
LOG, KERNEL, DRIVER, PACKAGES, START, STATE = (
    "engine's log",
    "kernel's log",
    "NVIDIA driver",
    "package log",
    "container's start",
    "container's state",
)


def of_node(node: NodeFacts, subject: Subject) -> list[Event]:
    """All events of a node's present run, one a rule, the earliest; by time."""
    container = node.container
    subject = replace(subject, log=replace(subject.log, facts=_facts(node)))
    begin = (container.started_at or container.created_at) if container else node.now
    events = [*_matched(node, subject, node.kernel, KERNEL, begin)]
    events += _matched(node, subject, _at(begin, node.driver), DRIVER, begin)
    events += _matched(node, subject, _at(begin, node.packages), PACKAGES, begin)
    if container:
        events += _matched(node, subject, _at(begin, [container.error]), START, begin)
        events += _matched(node, subject, container.log, LOG, begin)
        events += _end(node, subject, container, events)
        events += _tcp_instead_of_rdma(node, subject, container)
    return _first_of_each(events)


def _facts(node: NodeFacts) -> dict[str, str]:
    driver = next((gpu.get("driver_version", "") for gpu in node.gpus), "")
    return {"driver": driver, "cuda": node.container.cuda if node.container else ""}


def of_earlier_run(node: NodeFacts, subject: Subject) -> list[Event]:
    """Events of the run before Docker restarted the container."""
    lines = node.container.earlier if node.container else ()
    if not lines:
        return []
    reasons = [symptom for symptom in causes.in_log(subject.log, lines) if symptom.weight != "note"]
    unknown = None if reasons else causes.unknown_error(subject.log, lines, lines[-1].at, node.rank)
    return [_event(node, symptom, LOG) for symptom in ([unknown] if unknown else reasons)]


def died_at(node: NodeFacts, subject: Subject) -> float | None:
    """When a rank ended, or logged that it is about to; None for one that lives."""
    container = node.container
    if container is None:
        return None
    finished_at = None if container.running else container.finished_at or None
    return causes.died_at(subject.log, container.log, finished_at)


def event(
    node: NodeFacts, subject: Subject, condition: str, at: float, lines: Sequence[str] = (), **words: object
) -> Event:
    """The rule about a state that holds on a node, its words filled in."""
    shown = [subject.log.shown(line) for line in lines]
    return _event(node, causes.state(condition, at, shown, **words), STATE)


def _event(node: NodeFacts, symptom: Symptom, source: str) -> Event:
    return Event(rank=node.rank, host=node.host, source=source, **vars(symptom))


def _end(
    node: NodeFacts, subject: Subject, container: RankContainer, events: Sequence[Event]
) -> Iterator[Event]:
    """How the container ended, where no line of its log has the reason."""
    ended = died_at(node, subject)
    symptom = causes.end_of(
        subject.log,
        container.log,
        [event for event in events if event.source in (LOG, START, KERNEL)],
        rank=node.rank,
        ended=container.finished_at if container.oom_killed else ended,
        exit_code=None if container.running else container.exit_code,
        oom_killed=container.oom_killed,
    )
    if symptom:
        yield _event(node, symptom, LOG if symptom.rule == "unknown-error" else STATE)


def _tcp_instead_of_rdma(node: NodeFacts, subject: Subject, container: RankContainer) -> Iterator[Event]:
    lines = [
        line for line in container.log if "via NET/Socket" in line.text or "NET/IB : No device" in line.text
    ]
    if lines and node.hcas:
        cards = ", ".join(node.hcas)
        yield event(node, subject, "rdma-unused", lines[0].at, [lines[0].text], cards=cards)


def _matched(
    node: NodeFacts, subject: Subject, lines: Iterable[Line], source: str, begin: float
) -> Iterator[Event]:
    for line in lines:
        rule = subject.log.match(line.text)
        if rule is None or (source == KERNEL and not _concerns(node, rule, line, begin)):
            continue
        timed = Line(begin, line.text) if rule.standing else line
        yield _event(node, causes.of_rule(subject.log, rule, timed), source)


def _concerns(node: NodeFacts, rule: LogRule, line: Line, begin: float) -> bool:
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
    for event in sorted(events, key=lambda event: event.at):
        first.setdefault(event.rule, event)
    return list(first.values())
