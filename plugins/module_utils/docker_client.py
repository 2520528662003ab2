"""The node's Docker Engine over the docker SDK, for this collection's modules (Python 3.8 or newer)."""

from __future__ import annotations

import typing as t

try:
    import docker
    from docker.errors import APIError, DockerException, ImageNotFound, NotFound

    SDK_ERROR: t.Optional[str] = None
except ImportError as error:
    SDK_ERROR = str(error)
    # Something to catch in `except`; connect() has ended the module before it could be raised.
    APIError = DockerException = ImageNotFound = NotFound = Exception  # type: ignore[assignment,misc]

TIMEOUT_S = 60  # for one answer of the engine
__all__ = ["APIError", "DockerException", "ImageNotFound", "NotFound", "connect", "find"]

if t.TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule
    from docker.models.containers import Container


def connect(module: AnsibleModule) -> t.Optional[docker.DockerClient]:
    """Return a client that has answered a ping; end the module with a next step when there is none.

    In check mode a node without an engine gives None: the steps that would have installed it did not run.
    """
    if SDK_ERROR is not None:
        _fail(module, f"Python's docker SDK is missing ({SDK_ERROR})", "apt-get install python3-docker")
        return None
    try:
        client = docker.from_env(version="auto", timeout=TIMEOUT_S)
        client.ping()
    except DockerException as error:
        _fail(module, f"The Docker Engine does not answer: {error}", "journalctl -u docker -n 50")
        return None
    return client


def find(client: t.Optional[docker.DockerClient], name: str) -> t.Optional[Container]:
    """Return the container called so; None where there is none, or no engine."""
    try:
        return client.containers.get(name) if client is not None else None
    except NotFound:
        return None


def _fail(module: AnsibleModule, what: str, command: str) -> None:
    if not module.check_mode:
        module.fail_json(
            msg=f"{what}. Run the role headfirst.serving.docker_engine on this node, or try: {command}"
        )
