"""A container's specification as the `docker run` line a person would type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def docker_run(
    *,
    name: str,
    image: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    volumes: Sequence[str],
    devices: Sequence[str] = (),
    cap_add: Sequence[str] = (),
    cap_drop: Sequence[str] = (),
    ulimits: Mapping[str, int] | None = None,
    gpus: str | None = None,
    shm_size: str | None = None,
    ipc: str | None = None,
    env_file: str | None = None,
    restart: str | None = None,
) -> list[str]:
    """Argument list with host networking (hence no `-p`), an init as PID 1, and never `--privileged`."""
    line = ["docker", "run", "--detach", "--name", name, "--init", "--network", "host"]
    line += ["--ipc", ipc] if ipc else []
    line += ["--shm-size", shm_size] if shm_size else []
    line += ["--gpus", gpus] if gpus else []
    line += ["--restart", restart] if restart else []
    for capability in cap_drop:
        line += ["--cap-drop", capability]
    for capability in cap_add:
        line += ["--cap-add", capability]
    for limit, value in (ulimits or {}).items():
        line += ["--ulimit", f"{limit}={value}"]
    for device in devices:
        line += ["--device", device]
    line += ["--env-file", env_file] if env_file else []
    for variable, text in env.items():
        line += ["--env", f"{variable}={text}"]
    for volume in volumes:
        line += ["--volume", volume]
    return [*line, image, *argv]
