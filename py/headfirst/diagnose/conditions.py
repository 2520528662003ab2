"""States of the ranks, compared with each other: what no single line of a log says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import combinations

from headfirst.diagnose import rules
from headfirst.diagnose.events import died_at, event
from headfirst.diagnose.types import Container, Event, Node

HANG_S = 60.0
# What `deploy up` gives to one rank and not to another.
_OWN_FLAGS = {"--node-rank", "--host", "--config", "--dist-init-addr"}
_COMPILE = "--enable-torch-compile"
_NCCL_VERSION = re.compile(r"NCCL version (\d[\w.+]*)")
# Up to 2.22.3 NCCL looked for the peer memory of an older module only.
_PEERMEM_NCCL = (2, 23)
_CAPTURE = re.compile(r"Capture .*(begin|end)")
_BEGIN = re.compile(r"Init (torch distributed|parallel) begin")
_END = re.compile(r"Init (torch distributed|parallel) ends")
_READY = "fired up and ready"


def of_all(nodes: Sequence[Node], container_name: str) -> list[Event]:
    """Conditions of the present run, each on the rank that differs (the later one of two)."""
    there = [(node, node.container) for node in nodes if node.container]
    found = [
        event(node, rules.conditions()["no-container"], _begin(nodes), name=container_name)
        for node in nodes
        if node.container is None and node.problem is None
    ]
    for (one, first), (other, second) in combinations(there, 2):
        if (rank := _flag(first, "--node-rank")) is not None and rank == _flag(second, "--node-rank"):
            found.append(_on(other, second, "same-node-rank", rank=rank, other=one.host))
    if there:
        found += _unlike_the_first(there)
    for node, container in there:
        found += _hangs(node, container)
        found += _old_nccl(node, container)
    return found


def doing(node: Node) -> str:
    """In a few words what a rank did last, by its log."""
    stages = rules.engine_log().stages
    for line in reversed(node.container.log if node.container else ()):
        for pattern, words in stages:
            if found := pattern.search(line.text):
                return words.format(*found.groups())
    return ""


def _unlike_the_first(there: list[tuple[Node, Container]]) -> Iterator[Event]:
    """What must be the same on all ranks, compared with the first one's."""
    (head, first), *others = there
    right = _flag(first, "--dist-init-addr")
    for node, own in others:
        given = _flag(own, "--dist-init-addr")
        if given != right:
            yield _on(node, own, "wrong-head", given=given or "nothing", right=right or "none")
        if what := _difference(first, own):
            yield _on(node, own, "arguments-differ", other=head.host, what=what)
        if own.image_id != first.image_id:
            what = f"{own.image} {own.image_id[7:19]}, there {first.image} {first.image_id[7:19]}"
            yield _on(node, own, "images-differ", other=head.host, what=what)
        mine, theirs = _nccl(own), _nccl(first)
        if mine and theirs and mine != theirs:
            yield _on(node, own, "nccl-differs", other=head.host, mine=mine, theirs=theirs)


def _hangs(node: Node, container: Container) -> Iterator[Event]:
    """A rank that lives, says nothing and waits."""
    if not container.running or died_at(node) is not None or not container.log:
        return
    last, silent = container.log[-1], node.now - container.log[-1].at
    captures = [line for line in container.log if _CAPTURE.search(line.text)]
    compiling = bool(captures) and " end" not in captures[-1].text and _COMPILE in container.argv
    begun = [line for line in container.log if _BEGIN.search(line.text)]
    joined = any(_END.search(line.text) for line in container.log)
    if begun and not joined and node.now - begun[0].at > HANG_S:
        complete = any("Init COMPLETE" in line.text for line in container.log)
        name = "hang-after-nccl" if complete else "hang-rendezvous"
        seconds = f"{node.now - begun[0].at:.0f}"
        yield event(node, rules.conditions()[name], begun[0].at, [begun[0].text], seconds=seconds)
    elif compiling and node.now - captures[-1].at > HANG_S:
        line, seconds = captures[-1], f"{node.now - captures[-1].at:.0f}"
        yield event(node, rules.conditions()["compiling"], line.at, [line.text], seconds=seconds)
    elif silent > HANG_S and node.gpus and all(_spins(gpu) for gpu in node.gpus):
        yield event(node, rules.conditions()["hang-collective"], last.at, [last.text])
    elif node.health and node.health.status != 200 and any(_READY in line.text for line in container.log):
        said = f"/health_generate: {node.health.status or 'no answer'} {node.health.text}"
        yield event(node, rules.conditions()["generate-hangs"], node.now, [said])


def _old_nccl(node: Node, container: Container) -> Iterator[Event]:
    version = _nccl(container)
    if node.hcas and version and tuple(int(part) for part in version.split(".")[:2]) < _PEERMEM_NCCL:
        yield _on(node, container, "nccl-old", mine=version)


def _spins(gpu: dict[str, str]) -> bool:
    return gpu["utilization.gpu"] == "100" and gpu["utilization.memory"] == "0"


def _difference(first: Container, own: Container) -> str:
    """The arguments that only one of two ranks has, beside those that are each rank's own."""
    left, right = _arguments(first), _arguments(own)
    flags = sorted(flag for flag in left.keys() | right.keys() if left.get(flag) != right.get(flag))
    shown = [f"{flag} {right.get(flag, 'missing')}, there {left.get(flag, 'missing')}" for flag in flags[:3]]
    return "; ".join(shown)


def _arguments(container: Container) -> dict[str, str]:
    """Flag → its values, without the flags that are each rank's own."""
    found: dict[str, str] = {}
    flag = "command"
    for word in container.argv:
        if word.startswith("--"):
            flag, _, value = word.partition("=")
            found[flag] = value
        else:
            found[flag] = f"{found.get(flag, '')} {word}".strip()
    return {flag: value for flag, value in found.items() if flag not in _OWN_FLAGS}


def _flag(container: Container, flag: str) -> str | None:
    for word, following in zip(container.argv, [*container.argv[1:], ""], strict=True):
        if word == flag:
            return following
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None


def _nccl(container: Container) -> str | None:
    found = (_NCCL_VERSION.search(line.text) for line in container.log)
    return next((one.group(1) for one in found if one), None)


def _begin(nodes: Sequence[Node]) -> float:
    """When the run began, as far as any node knows."""
    starts = [node.container.started_at for node in nodes if node.container and node.container.started_at]
    return min(starts, default=min(node.now for node in nodes))


def _on(node: Node, container: Container, name: str, **words: object) -> Event:
    at = container.started_at or container.created_at
    return event(node, rules.conditions()[name], at, (), **words)
