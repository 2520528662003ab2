"""The specification of one container: made by the plan, shown as `docker run`, carried out by the roles."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class Container(BaseModel):
    """One container. The fields but `name` are the options of `spec` in the module `container`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    image: str
    command: list[str] = []
    environment: dict[str, str] = {}
    env_file: str | None = None  # on the host; secrets come from it, so that the plan has none
    network_mode: str = "host"
    ipc_mode: str | None = None
    shm_size: str | None = None
    volumes: list[str] = []
    devices: list[str] = []
    gpus: str | None = None
    cap_add: list[str] = []
    cap_drop: list[str] = []
    ulimits: dict[str, int] = {}
    labels: dict[str, str] = {}
    restart_policy: Literal["no", "on-failure", "unless-stopped", "always"] = "no"
    init: bool = True  # an engine that crashes as PID 1 exits 0

    def module_spec(self) -> dict[str, Any]:
        """`spec` of the module `container`."""
        return self.model_dump(exclude={"name"}, exclude_none=True)
