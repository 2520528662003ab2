"""A container's specification as the `docker run` line a person would type."""

from __future__ import annotations

from headfirst.containers.spec import Container


def docker_run(container: Container) -> list[str]:
    """The argument list; it never has `--privileged`, and no `-p`, because the network is the host's."""
    line = ["docker", "run", "--detach", "--name", container.name]
    line += ["--init"] if container.init else []
    line += ["--network", container.network_mode]
    line += ["--ipc", container.ipc_mode] if container.ipc_mode else []
    line += ["--shm-size", container.shm_size] if container.shm_size else []
    line += ["--gpus", container.gpus] if container.gpus else []
    line += ["--restart", container.restart_policy] if container.restart_policy != "no" else []
    for capability in container.cap_drop:
        line += ["--cap-drop", capability]
    for capability in container.cap_add:
        line += ["--cap-add", capability]
    for limit, value in container.ulimits.items():
        line += ["--ulimit", f"{limit}={value}"]
    for device in container.devices:
        line += ["--device", device]
    for label, value_text in container.labels.items():
        line += ["--label", f"{label}={value_text}"]
    line += ["--env-file", container.env_file] if container.env_file else []
    for variable, text in container.environment.items():
        line += ["--env", f"{variable}={text}"]
    for volume in container.volumes:
        line += ["--volume", volume]
    return [*line, container.image, *container.command]
