"""What `deploy status` shows, and `--json` dumps."""

from __future__ import annotations

import operator

from pydantic import Field

from headfirst.control.live.gpus import GpuUse
from headfirst.control.live.load import EngineLoad
from headfirst.decide.diagnose.measured import Measured
from headfirst.decide.frozen import Tolerant
from headfirst.decide.plan.types import Capabilities


class ContainerStatus(Tolerant):
    """One container as its host's Docker Engine sees it.

    `state` is Docker's (`running`, `exited`, `restarting` …), or `missing` (no such container), or
    `unreachable` (the host or its engine does not answer; `problem` states why).
    """

    host: str
    state: str
    problem: str | None = None
    health: str | None = None
    restarts: int | None = None  # by Docker
    exit_code: int | None = None
    image: str | None = None
    image_id: str | None = None
    started_at: str | None = None
    argv: list[str] = []


class RankStatus(ContainerStatus):
    """The container of one rank.

    `restarts` are those of the supervisor, which starts all ranks of a replica together, None where they
    cannot be read; without a supervisor they are Docker's.
    """

    rank: int
    # Of the rank; left out of JSON on hosts without GPUs.
    gpus: list[GpuUse] = Field(default_factory=list, exclude_if=operator.not_)


class EngineStatus(Tolerant):
    """What rank 0 answers: `ready` means that the model computed an answer. `load` is None where it is not
    ready, or gives no figures."""

    url: str
    ready: bool
    models: list[str] = []
    problem: str | None = None
    load: EngineLoad | None = None


class WebuiStatus(ContainerStatus):
    """The chat page's container, and whether the page answers."""

    url: str
    ready: bool


class RoutedReplica(Tolerant):
    """A replica in a router's list. `state`: pending, ready, not_ready, failed, draining; or missing."""

    url: str
    state: str
    requests: int | None = None  # that it answers now; None where the router does not list it


class RouterStatus(ContainerStatus):
    """A router's container, and its replicas. `ready`: it sends requests to every replica of the service."""

    service: str
    url: str
    ready: bool
    replicas: list[RoutedReplica] = []


class Supervision(Tolerant):
    """A replica as the supervisor of its head sees it; `for_s` is how long the phase has lasted.

    Where that cannot be read the phase is `unknown`, `text` states why, and the figures are None.
    """

    phase: str = Field(pattern=r"^[a-z_]{1,20}$")
    text: str = ""
    for_s: float | None = Field(default=None, ge=0)
    restarts: int | None = Field(default=None, ge=0)  # of all ranks together, by the supervisor
    last_reason: str = ""
    start_seconds: float | None = None  # how long the last start took


class ReplicaStatus(Tolerant):
    """One copy of a service. `ready`: all ranks run and the engine generates. `role`: prefill, or decode.

    `supervisor` is None where no supervisor keeps the replica.
    """

    service: str
    index: int
    role: str | None = Field(default=None, exclude_if=operator.not_)
    ready: bool
    ranks: list[RankStatus]
    engine: EngineStatus
    supervisor: Supervision | None = None


class ClusterStatus(Tolerant):
    """Everything `deploy status` shows.

    `ready`: all replicas are ready, at every router, too, and the chat page, if there is one, answers.
    """

    ready: bool
    replicas: list[ReplicaStatus]
    webui: WebuiStatus | None
    # By service, where a rank 0 is there: as planned on this controller, else what its arguments prove.
    capabilities: dict[str, Capabilities] = {}
    # What its start measured, by the log of rank 0.
    measured: dict[str, Measured] = Field(default_factory=dict, exclude_if=operator.not_)
    # Left out of JSON where there is none.
    routers: list[RouterStatus] = Field(default_factory=list, exclude_if=operator.not_)
