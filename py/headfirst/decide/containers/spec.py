"""The specification of one container: made by the plan, shown as `docker run`, carried out by the roles."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ansible_collections.headfirst.serving.plugins.module_utils.container_spec import cdi_devices, run_options

from headfirst.decide.frozen import Frozen

Runtime = Literal["docker", "podman"]


class Container(Frozen):
    """One container. The fields but `name` are the options of `spec` in the module `container`."""

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
    files: dict[str, str] = {}  # by path on the host: Python programs in `command` that `volumes` mount
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

    def without_files(self) -> Container:
        """The container for who writes no `files`: its command has their text."""
        volumes = [volume for volume in self.volumes if volume.split(":")[0] not in self.files]
        command = with_text(self.command, self.files)
        return self.model_copy(update={"command": command, "volumes": volumes, "files": {}})


def program_file(name: str, text: str) -> str:
    """The path of a program in `files`, on the host and in the container; other text has another path."""
    return f"/etc/headfirst/{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.py"


def with_text(command: Sequence[str], files: Mapping[str, str]) -> list[str]:
    """A command of Python with the text of its programs in place of their paths."""
    return [part for word in command for part in (["-c", files[word]] if word in files else [word])]


def gpu_options(runtime: Runtime, devices: Sequence[str] | None) -> dict[str, Any]:
    """Fields of a container that gets GPUs by index or UUID, None for all; Podman has them by CDI."""
    gpus = "all" if devices is None else f"device={','.join(devices)}"
    return {"devices": cdi_devices(gpus)} if runtime == "podman" else {"gpus": gpus}


def docker_run(container: Container, program: str = "docker") -> list[str]:
    """The argument list; it never has `--privileged`, and no `-p`, because the network is the host's.

    `program`: docker, or one that takes its options, such as nerdctl or podman.
    """
    options = run_options(container.model_dump(), program)
    return [
        program,
        "run",
        "--detach",
        "--name",
        container.name,
        *options,
        container.image,
        *container.command,
    ]
