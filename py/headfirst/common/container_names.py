"""Names of the containers that serve: the plan gives them, the live verbs read them."""

from __future__ import annotations

ENGINE = "headfirst-engine"
WEBUI = "headfirst-webui"
PROXY = "headfirst-proxy"
ROUTER = "headfirst-router"


def engine(service: str | None, replica: int) -> str:
    """The container of each rank of a replica; a service that has no name is the only one of its cluster."""
    name = f"{ENGINE}-{service}" if service else ENGINE
    return f"{name}-{replica}" if replica else name


def is_engine(container: str) -> bool:
    """Whether it is a rank under the name by which it serves: other generations have a dot in theirs."""
    return f"{container}-".startswith(f"{ENGINE}-") and "." not in container


def router(service: str | None) -> str:
    """The container of each router of a service."""
    return f"{ROUTER}-{service}" if service else ROUTER


def env_file(container: str) -> str:
    """The file with the secret environment of a router or a rank in this container."""
    return f"/etc/headfirst/{container.removeprefix('headfirst-')}.env"


def engine_config(container: str) -> str:
    """The file with the API key that rank 0 in this container reads."""
    return f"/etc/headfirst/{container.removeprefix('headfirst-')}.yaml"
