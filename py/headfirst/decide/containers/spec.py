"""The specification of one container: made by the plan, shown as `docker run`, carried out by the roles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from ansible_collections.headfirst.serving.plugins.module_utils.container_spec import cdi_devices
from pydantic import BaseModel, ConfigDict

Runtime = Literal["docker", "podman"]


class Container(BaseModel):
    """One container. The fields but `name` are the options of `spec` in the module `container`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    image: str
    user: str | None = None  # None keeps the image's
    entrypoint: str | None = None  # a program; None keeps the image's
    command: list[str] = []
    environment: dict[str, str] = {}
    env_file: str | None = None  # on the host; secrets come from it, so that the plan has none
    network_mode: str = "host"
    ipc_mode: str | None = None
    cgroup_parent: str | None = None  # a slice of systemd; None: where the runtime puts containers
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


def gpu_options(runtime: Runtime, devices: Sequence[str] | None) -> dict[str, Any]:
    """Fields of a container that gets GPUs by index or UUID, None for all; Podman has them by CDI."""
    gpus = "all" if devices is None else f"device={','.join(devices)}"
    return {"devices": cdi_devices(gpus)} if runtime == "podman" else {"gpus": gpus}
