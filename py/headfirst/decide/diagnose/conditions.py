"""States of the ranks, compared with each other: what no single line of a log reports."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from itertools import combinations

from ansible_collections.headfirst.serving.plugins.plugin_utils.failure_causes import Line

from headfirst.decide.diagnose.events import died_at, event
from headfirst.decide.diagnose.subject import Subject, values
from headfirst.decide.diagnose.types import Event, NodeFacts, RankContainer

HANG_S = 60.0
_NCCL_VERSION = re.compile(r"NCCL version (\d[\w.+]*)")
# Up to 2.22.3 NCCL searched for the peer memory of an older module only.
_PEERMEM_NCCL = (2, 23)


def of_all(nodes: Sequence[NodeFacts], subject: Subject, container_name: str) -> list[Event]:
    """Conditions of the present run, each on the rank that differs (the later one of two)."""
    there = [(node, node.container) for node in nodes if node.container]
    symptoms = [
        event(node, subject, "no-container", _begin(nodes), name=container_name)
        for node in nodes
        if node.container is None and node.problem is None
    ]
    flag = subject.about.rank_flag
    for (node, first), (other, second) in combinations(there, 2):
        rank = values(first.argv).get(flag)
        if rank is not None and rank == values(second.argv).get(flag):
            symptoms.append(
                _on(other, subject, second, "same-node-rank", flag=flag, rank=rank, other=node.host)
            )
    if there:
        symptoms += _unlike_the_first(there, subject)
    for node, container in there:
        symptoms += _hangs(node, subject, container)
        symptoms += _old_nccl(node, subject, container)
    return symptoms


def doing(node: NodeFacts, subject: Subject) -> str:
    """In a few words what a rank did last, by its log."""
    return subject.log.doing([line.text for line in node.container.log] if node.container else [])


def _unlike_the_first(there: list[tuple[NodeFacts, RankContainer]], subject: Subject) -> Iterator[Event]:
    """What must be the same on all ranks, compared with the first one's."""
    (head, first), *others = there
    flag = subject.about.head_flag
    right = values(first.argv).get(flag)
    for node, container in others:
        address = values(container.argv).get(flag)
        if address != right:
            words = {"flag": flag, "given": address or "nothing", "right": right or "none"}
            yield _on(node, subject, container, "wrong-head", **words)
        if what := _difference(first, container, subject.about.own_flags | {flag}):
            yield _on(node, subject, container, "arguments-differ", other=head.host, what=what)
        if container.image_id != first.image_id:
            what = f"{container.image} {container.image_id[7:19]}, there {first.image} {first.image_id[7:19]}"
            yield _on(node, subject, container, "images-differ", other=head.host, what=what)
        mine, theirs = _nccl(container), _nccl(first)
        if mine and theirs and mine != theirs:
            yield _on(node, subject, container, "nccl-differs", other=head.host, mine=mine, theirs=theirs)


def _hangs(node: NodeFacts, subject: Subject, container: RankContainer) -> Iterator[Event]:
    """A rank that runs, logs nothing and waits."""
    if not container.running or died_at(node, subject) is not None or not container.log:
        return
    log = subject.log
    last, silent = container.log[-1], node.now - container.log[-1].at
    compiling = _compiling(subject, container)
    begun = [line for line in container.log if log.joining.search(line.text)]
    joined = any(log.joined.search(line.text) for line in container.log)
    if begun and not joined and node.now - begun[0].at > HANG_S:
        complete = any("Init COMPLETE" in line.text for line in container.log)
        name = "hang-after-nccl" if complete else "hang-rendezvous"
        seconds = f"{node.now - begun[0].at:.0f}"
        yield event(node, subject, name, begun[0].at, [begun[0].text], seconds=seconds)
    elif compiling and node.now - compiling[0].at > HANG_S:
        (line, flag), seconds = compiling, f"{node.now - compiling[0].at:.0f}"
        yield event(node, subject, "compiling", line.at, [line.text], seconds=seconds, flag=flag)
    elif silent > HANG_S and node.gpus and all(_spins(gpu) for gpu in node.gpus):
        yield event(node, subject, "hang-collective", last.at, [last.text])
    elif node.health and node.health.status != 200 and _was_ready(subject, container):
        said = f"{node.health.status or 'no answer'} {node.health.text}"
        yield event(node, subject, "generate-hangs", node.now, [said])


def _was_ready(subject: Subject, container: RankContainer) -> bool:
    return any(subject.log.ready.search(line.text) for line in container.log)


def _compiling(subject: Subject, container: RankContainer) -> tuple[Line, str] | None:
    """The line since which CUDA graphs are captured, and the flag that makes it slow; None without these."""
    flags = [flag for flag in values(container.argv) if flag in subject.about.slow_start_flags]
    begin, end = subject.log.capturing, subject.log.captured
    captures = [line for line in container.log if begin.search(line.text) or end.search(line.text)]
    if not flags or not captures or end.search(captures[-1].text):
        return None
    return captures[-1], flags[0]


def _old_nccl(node: NodeFacts, subject: Subject, container: RankContainer) -> Iterator[Event]:
    version = _nccl(container)
    if node.hcas and version and tuple(int(part) for part in version.split(".")[:2]) < _PEERMEM_NCCL:
        yield _on(node, subject, container, "nccl-old", mine=version)


def _spins(gpu: dict[str, str]) -> bool:
    return gpu["utilization.gpu"] == "100" and gpu["utilization.memory"] == "0"


def _difference(first: RankContainer, second: RankContainer, own_flags: Set[str]) -> str:
    """The arguments that only one of two ranks has, beside those that are each rank's own."""
    left, right = values(first.argv), values(second.argv)
    if left.get("-c") != right.get("-c"):
        return ""  # two scripts, as those of Ray's head and its workers
    flags = sorted(
        flag for flag in (left.keys() | right.keys()) - own_flags if left.get(flag) != right.get(flag)
    )
    shown = [f"{flag} {right.get(flag, 'missing')}, there {left.get(flag, 'missing')}" for flag in flags[:3]]
    return "; ".join(shown)


def _nccl(container: RankContainer) -> str | None:
    matches = (_NCCL_VERSION.search(line.text) for line in container.log)
    return next((match.group(1) for match in matches if match), None)


def _begin(nodes: Sequence[NodeFacts]) -> float:
    """When the run began, as far as the nodes report it."""
    starts = [node.container.started_at for node in nodes if node.container and node.container.started_at]
    return min(starts, default=min(node.now for node in nodes))


def _on(node: NodeFacts, subject: Subject, container: RankContainer, name: str, **words: object) -> Event:
    at = container.started_at or container.created_at
    return event(node, subject, name, at, (), **words)
