"""A Docker Engine with containers that have names, found as Docker finds them: by regular expressions."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import docker
from ansible_collections.headfirst.serving.plugins.module_utils.container_spec import GENERATION_LABEL
from described_container import described, states


class NamedContainer:
    """A container of the simulated engine."""

    def __init__(self, engine: DockerNames, name: str, generation: str, running: bool) -> None:
        self._engine, self.name, self.id = engine, name, f"id of {name}"
        self.labels = {GENERATION_LABEL: generation} if generation else {}
        self.attrs = described("running" if running else "exited", id=self.id)

    def stop(self, timeout: int) -> None:
        self.attrs["State"] |= states(False)
        self._engine.stopped.append(self.name)

    def rename(self, name: str) -> None:
        self.name = name

    def logs(self, tail: int, timestamps: bool, since: int) -> bytes:
        return f"the log of {self.name}".encode()


class DockerNames:
    """`Containers._client` of a test."""

    def __init__(self) -> None:
        self.every: list[NamedContainer] = []
        self.stopped: list[str] = []
        self.containers: Any = SimpleNamespace(list=self._list, get=self._get)

    def add(self, name: str, generation: str = "", *, running: bool = False) -> None:
        self.every.append(NamedContainer(self, name, generation, running))

    def names(self) -> list[str]:
        return sorted(container.name for container in self.every)

    def _list(self, all: bool, filters: dict[str, str]) -> list[NamedContainer]:
        if "label" in filters:
            return [container for container in self.every if filters["label"] in container.labels]
        return [container for container in self.every if re.search(filters["name"], f"/{container.name}")]

    def _get(self, name: str) -> NamedContainer:
        for container in self.every:
            if container.name == name:
                return container
        raise docker.errors.NotFound(f"no container {name}")
