"""A container's specification as the `docker run` line a person would type."""

from __future__ import annotations

from headfirst.decide.containers.spec import Container


def docker_run(container: Container, program: str = "docker") -> list[str]:
    """The argument list; it never has `--privileged`, and no `-p`, because the network is the host's.

    `program`: docker, or one that takes its options, such as nerdctl or podman.
    """
    line = [program, "run", "--detach", "--name", container.name]
    line += ["--init"] if container.init else []
    line += ["--user", container.user] if container.user else []
    line += ["--entrypoint", container.entrypoint] if container.entrypoint else []
    line += ["--network", container.network_mode]
    line += ["--ipc", container.ipc_mode] if container.ipc_mode else []
    line += ["--cgroup-parent", container.cgroup_parent] if container.cgroup_parent else []
    # Podman refuses a size for memory that is the host's; the others ignore it.
    sized = container.shm_size and not (program == "podman" and container.ipc_mode == "host")
    line += ["--shm-size", str(container.shm_size)] if sized else []
    line += ["--gpus", _one_csv_field(container.gpus)] if container.gpus else []
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


def _one_csv_field(gpus: str) -> str:
    """The program reads the option as CSV: a comma between devices must be inside quotes."""
    return f'"{gpus}"' if "," in gpus else gpus
