"""What `deploy status` shows, and `--json` dumps."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class ContainerStatus(_Frozen):
    """One container as its host's Docker Engine sees it.

    `state` is Docker's (`running`, `exited`, `restarting` …), or `missing` (no such container), or
    `unreachable` (the host or its engine does not answer; `problem` says why).
    """

    host: str
    state: str
    problem: str | None = None
    health: str | None = None
    restarts: int | None = None
    exit_code: int | None = None
    image: str | None = None
    image_id: str | None = None
    started_at: str | None = None
    argv: list[str] = []


class RankStatus(ContainerStatus):
    """The container of one rank."""

    rank: int


class EngineStatus(_Frozen):
    """What rank 0 answers: `ready` means that it generated a token."""

    url: str
    ready: bool
    models: list[str] = []
    problem: str | None = None


class WebuiStatus(ContainerStatus):
    """The chat page's container, and whether the page answers."""

    url: str
    ready: bool


class ClusterStatus(_Frozen):
    """Everything `deploy status` shows.

    `ready`: all ranks run, the engine generates, and the chat page, if there is one, answers.
    """

    ready: bool
    ranks: list[RankStatus]
    engine: EngineStatus
    webui: WebuiStatus | None
