"""Names of the containers that serve: the plan gives them, the live verbs read them."""

from __future__ import annotations

ENGINE = "headfirst-engine"
WEBUI = "headfirst-webui"
PROXY = "headfirst-proxy"
ROUTER = "headfirst-router"
REHEARSAL = "headfirst-rehearsal"  # begins no name of what serves; the model of a rehearsal, too

REHEARSALS = "/run/headfirst/rehearsals"


def engine(service: str | None, replica: int) -> str:
    """The container of each rank of a replica; a service that has no name is the only one of its cluster."""
    name = f"{ENGINE}-{service}" if service else ENGINE
    return f"{name}-{replica}" if replica else name


def is_engine(container: str) -> bool:
    """Whether it is a rank under the name by which it serves: other generations have a dot in theirs."""
    return f"{container}-".startswith(f"{ENGINE}-") and "." not in container


def rehearsal(service: str | None, replica: int) -> str:
    """The container of each rank of a replica while it is rehearsed."""
    return f"{REHEARSAL}-{service}-r{replica}" if service else f"{REHEARSAL}-r{replica}"


def rehearsal_folder(container: str) -> str:
    """The folder of the host with all files of such a container."""
    return f"{REHEARSALS}/{container}"


def router(service: str | None) -> str:
    """The container of each router of a service."""
    return f"{ROUTER}-{service}" if service else ROUTER


def env_file(container: str) -> str:
    """The file with the secret environment of a router or a rank in this container."""
    return f"/etc/headfirst/{container.removeprefix('headfirst-')}.env"


def engine_config(container: str) -> str:
    """The file with the API key that rank 0 in this container reads."""
    return f"/etc/headfirst/{container.removeprefix('headfirst-')}.yaml"
