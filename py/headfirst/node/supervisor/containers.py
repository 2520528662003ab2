"""The containers of this node's ranks, through the Docker Engine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import docker
import requests
from ansible_collections.headfirst.serving.plugins.module_utils.container_spec import (
    GENERATION_LABEL,
    RANK_LABEL,
)

from headfirst.common.container_state import ContainerState, container_state

if TYPE_CHECKING:
    from docker.models.containers import Container

# A rank that is stopped here has failed, or its peers have: what it holds is lost.
STOP_S = 3
_DOCKER_S = 45
LOG_LINES = 60
_LOG_BYTES = 16_384

EngineDown = (docker.errors.DockerException, requests.RequestException, OSError)
"""What is raised where the Docker Engine does not answer, or refuses."""


@dataclass(frozen=True)
class Rank:
    """A rank's container. `start` identifies one start of it: an id that is compared and never parsed."""

    name: str
    rank: int
    generation: str
    running: bool
    start: str
    ended: str  # why it does not run, "" while it does


class Containers:
    """The Docker Engine of this node."""

    def __init__(self) -> None:
        self._client: docker.DockerClient | None = None

    def ranks(self) -> list[Rank]:
        """All ranks that have their name, running or not. Raises EngineDown."""
        every = self._docker().containers.list(all=True, filters={"label": GENERATION_LABEL})
        ranks = [_rank(container) for container in every]
        # Containers that are kept beside the one that serves are called NAME.GENERATION.
        return [rank for rank in ranks if not rank.name.endswith(f".{rank.generation}")]

    def rank(self, name: str) -> Rank | None:
        """The rank called so; None where there is none. Raises EngineDown."""
        try:
            container = self._docker().containers.get(name)
        except docker.errors.NotFound:
            return None
        return _rank(container) if container.labels.get(GENERATION_LABEL) else None

    def start(self, name: str) -> None:
        """Start the container. Raises EngineDown."""
        self._docker().containers.get(name).start()

    def stop(self, name: str) -> None:
        """Stop the container, also one whose processes are stopped. Raises EngineDown."""
        self._docker().containers.get(name).stop(timeout=STOP_S)

    def activate(self, name: str, generation: str) -> None:
        """Stop what has the name, and give it to the container of another generation. Raises EngineDown."""
        client = self._docker()
        containers = client.containers.list(all=True, filters={"name": _exactly(f"{name}.{generation}")})
        if not containers:
            if (now := self.rank(name)) is not None and now.generation == generation:
                return
            raise docker.errors.NotFound(f"there is no container {name}.{generation}")
        for present in client.containers.list(all=True, filters={"name": _exactly(name)}):
            present.stop(timeout=STOP_S)
            present.rename(f"{name}.{present.labels.get(GENERATION_LABEL, 'before')}")
        containers[0].rename(name)

    def log(self, name: str) -> list[str]:
        """The last lines of its log since its last start, the time before each. Raises EngineDown."""
        container = self._docker().containers.get(name)
        started_s = container_state(container.attrs).started_s
        told = container.logs(tail=LOG_LINES, timestamps=True, since=max(started_s, 1))
        return told[-_LOG_BYTES:].decode(errors="replace").splitlines()

    def _docker(self) -> docker.DockerClient:
        if self._client is None:
            self._client = docker.DockerClient.from_env(version="auto", timeout=_DOCKER_S)
        return self._client


def _exactly(name: str) -> str:
    """The filter for one name, a regular expression: Docker compares with "/NAME", Podman with "NAME"."""
    return f"^/?{re.escape(name)}$"


def _rank(container: Container) -> Rank:
    state = container_state(container.attrs)
    return Rank(
        name=str(container.name),
        rank=int(container.labels.get(RANK_LABEL, 0)),
        generation=container.labels.get(GENERATION_LABEL, ""),
        running=state.running,
        start=f"{state.id}@{state.started_at}",
        ended="" if state.running else _ended(state),
    )


def _ended(state: ContainerState) -> str:
    if state.status == "paused":
        return "it was paused"
    if state.oom_killed:
        return "it was killed: out of memory"
    if state.error:
        return f"it did not start: {state.error}"
    return f"it ended with exit code {state.exit_code}"
