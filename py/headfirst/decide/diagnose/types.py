"""What is known of the nodes, and what a diagnosis states."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ansible_collections.headfirst.serving.plugins.plugin_utils.engine_log_rules import Weight
from ansible_collections.headfirst.serving.plugins.plugin_utils.failure_causes import Line

from headfirst.decide.frozen import Tolerant


class HttpAnswer(NamedTuple):
    """What an HTTP address answered; status 0: nothing did, and `text` states why."""

    status: int
    text: str


@dataclass(frozen=True)
class RankContainer:
    """A rank's container. Times are seconds since 1970 by the controller's clock; 0.0: never.

    What has a default is not known where only a log is.
    `cuda` is the version of CUDA in its image, "" where the image names none.
    """

    status: str
    running: bool
    created_at: float
    started_at: float
    finished_at: float
    id: str = ""
    image: str = ""
    image_id: str = ""
    argv: tuple[str, ...] = ()
    exit_code: int | None = None
    oom_killed: bool = False
    error: str = ""
    restarts: int = 0
    log: tuple[Line, ...] = ()
    earlier: tuple[Line, ...] = ()  # the end of the runs before this one
    cuda: str = ""


@dataclass(frozen=True)
class NodeFacts:
    """One host of a rank. Its clock is `offset` seconds ahead of the controller's.

    `problem` states why no state is known; `gpus` are nvidia-smi's fields, one dict a GPU. `health` is 200 if
    rank 0 is ready, else the first answer that shows it is not.
    """

    rank: int
    host: str
    offset: float = 0.0
    now: float = 0.0
    problem: str | None = None
    container: RankContainer | None = None
    kernel: tuple[Line, ...] = ()
    driver: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    gpus: tuple[dict[str, str], ...] = ()
    hcas: tuple[str, ...] = ()
    health: HttpAnswer | None = None
    metrics: HttpAnswer | None = field(default=None, repr=False)


class Event(Tolerant):
    """One thing that happened on a node. `at` is by the controller's clock, seconds since 1970.

    `rule` is "unknown-error" or "rank-ended" where no rule matches the line; `weight` as in the rules.
    In a log, `host` names who wrote the line, and `at` is by the clock of the lines, or, where they have
    none in common, the distance from the end of the file; elsewhere `file` and `line` are "" and 0.
    """

    at: float
    rank: int
    host: str
    rule: str
    failures: list[int]
    weight: Weight
    means: str
    fix: str
    source: str
    lines: list[str] = []
    file: str = ""
    line: int = 0


class NodeState(Tolerant):
    """One rank in a diagnosis: what its container is, and what the engine was doing last."""

    rank: int
    host: str
    state: str
    doing: str
    clock_offset_s: float
    problem: str | None


class Diagnosis(Tolerant):
    """`ready`: it serves. `decisive`: where it began. `then`: what followed. `notes`: what kills nothing."""

    ready: bool
    decisive: Event | None
    then: list[Event]
    notes: list[Event]
    nodes: list[NodeState]


class ReplicaDiagnosis(Tolerant):
    """The diagnosis of one replica of a service."""

    service: str
    replica: int
    found: Diagnosis


class Live(Tolerant):
    """Requests; usage is 0..1 of the KV cache, throughput tokens a second (None: it is not given)."""

    running: float
    queued: float
    token_usage: float
    gen_throughput: float | None


class Advice(Tolerant):
    """One change: `setting` of engine_args, what to do with it, and the figures that show it.

    `values`: those that `deploy tune` tries.
    """

    setting: str
    change: str
    why: str
    values: list[str] = []


class Tuning(Tolerant):
    """Figures and what follows from them.

    `live` is None where the engine does not answer, `advice` where there are no tuning rules for the engine.
    `past` is what the ranks have logged, by the engine's own names; `seen` is the same for a person.
    """

    engine: str  # as its own project writes it
    live: Live | None
    past: dict[str, int | bool | None] = {}
    seen: str = ""
    load: str
    arguments: dict[str, str]
    advice: list[Advice] | None
