"""The specifications of containers on the hosts, from the labels that the roles gave them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import docker
from ansible_collections.headfirst.serving.plugins.module_utils.container_spec import SPEC_JSON_LABEL

from headfirst.common import container_names as names
from headfirst.common.errors import HeadfirstError
from headfirst.common.untrusted import UntrustedError, json_document
from headfirst.control.live.ssh_access.ssh import try_each
from headfirst.control.live.ssh_access.transport import docker_over_ssh
from headfirst.decide.cluster.login import HostAccess

_LIMIT = 1 << 20  # bytes of a label


class Present(NamedTuple):
    """A container: whether it runs, and its specification; `planned_image_id`: "" where the host lacks it."""

    running: bool
    spec: Mapping[str, Any]
    planned_image_id: str

    @property
    def command(self) -> tuple[str, ...]:
        """What the container runs, without the entrypoint."""
        words = self.spec.get("command")
        return tuple(map(str, words)) if isinstance(words, list) else ()


def specifications(
    hosts: Sequence[HostAccess], planned: Mapping[str, Mapping[str, str]]
) -> dict[str, dict[str, Present] | HeadfirstError]:
    """The containers that are there, by host and name; the error of a host that cannot be asked.

    `planned`: by host, the image that each container is to have, by the container's name. Ranks that run
    under other names are returned, too.
    """

    def ask(access: HostAccess) -> dict[str, Present]:
        with docker_over_ssh(access) as client:
            running = (name.lstrip("/") for each in client.api.containers() for name in each["Names"])
            ranks = {name: "" for name in running if names.is_engine(name)}
            present = {
                name: _present(client, name, image, access.host)
                for name, image in (ranks | {**planned[access.host]}).items()
            }
        return {name: container for name, container in present.items() if container}

    return try_each([access for access in hosts if access.host in planned], ask)


def _present(client: docker.DockerClient, name: str, image: str, host: str) -> Present | None:
    try:
        container = client.containers.get(name)
    except docker.errors.NotFound:
        return None
    text = (container.labels or {}).get(SPEC_JSON_LABEL, "{}")
    spec = json_document(text, what=f"the specification of {name}", where=host, limit=_LIMIT)
    if not isinstance(spec, dict):
        raise UntrustedError(f"the specification of {name} is no object", where=host)
    try:
        image_id = str(client.images.get(image).id) if image else ""
    except docker.errors.ImageNotFound:
        image_id = ""
    return Present(container.status == "running", spec, image_id)
