"""Which containers each host of the plan runs, in their order, and a script that waits until all answer."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from headfirst.decide.containers.spec import Container
from headfirst.decide.plan.types import Plan, PlannedReplica, PlannedService
from headfirst.decide.render.secret_files import SecretFile, key_file, of_env_file, of_environment, of_replica
from headfirst.decide.render.shell import ASK, FAIL, program


@dataclass(frozen=True)
class RenderedRank:
    """Whose rank a container is."""

    service: PlannedService
    replica: PlannedReplica
    number: int


@dataclass(frozen=True)
class HostPart:
    """One container on a host, what it is, and the files with secrets that it reads."""

    container: Container
    what: str
    secret: SecretFile | None
    rank: RenderedRank | None = None
    environment: tuple[SecretFile, ...] = ()  # of a rank

    @property
    def files(self) -> list[SecretFile]:
        """All files with secrets that it reads."""
        return [*([self.secret] if self.secret else []), *self.environment]


@dataclass(frozen=True)
class HostParts:
    """A host and its containers: ranks, routers, the chat page."""

    name: str
    address: str
    parts: list[HostPart]


def hosts(plan: Plan) -> list[HostParts]:
    """All hosts, heads before their workers."""
    host_parts: dict[str, HostParts] = {}

    def add(host: str, address: str, part: HostPart) -> None:
        host_parts.setdefault(host, HostParts(host, address, [])).parts.append(part)

    for service in plan.services:
        for replica, node in service.ranks:
            secret = of_replica(service, replica)
            what = f"rank {node.rank} of {len(replica.nodes)} of {service.served_model_name}"
            reads = any(volume.startswith(f"{secret.path}:") for volume in node.container.volumes)
            rank = RenderedRank(service, replica, node.rank)
            environment = tuple(of_environment(service, replica))
            container = node.container.without_files()
            part = HostPart(container, what, secret if reads else None, rank, environment)
            add(node.host, node.address, part)
    for service in plan.services:
        for router in service.routers:
            # No supervisor registers the replicas here.
            container = router.container.without_files().model_copy(update={"command": router.fixed_command})
            what = f"the router of {service.served_model_name} at {router.url}"
            add(router.host, router.address, HostPart(container, what, of_env_file(router)))
    if plan.webui:
        what = f"the chat page at {plan.webui.url}"
        add(
            plan.webui.host, plan.webui.address, HostPart(plan.webui.container, what, of_env_file(plan.webui))
        )
    return list(host_parts.values())


def secrets(on: list[HostParts]) -> list[SecretFile]:
    """The files with secrets of these hosts."""
    return [file for host in on for part in host.parts for file in part.files]


ASK_SCRIPT = "ask.sh"

_SERVES = """\
serves() { # KEY_FILE SECONDS URL BODY
  local end=$((SECONDS + $2)) answer=
  until answer=$(ask "$1" "$3" --header 'Content-Type: application/json' --data "$4" 2>&1); do
    [ "$SECONDS" -lt "$end" ] || fail "$3 does not answer after $2 s: $answer"
    sleep 5
  done
  printf '%s\\n' "$answer"
}
"""


def ask_script(header: Sequence[str], plan: Plan) -> str:
    """Asks at the addresses of the clients; it needs curl, and secrets/ of the same folder."""
    lines = []
    for service in plan.services:
        ready = service.readiness
        body = json.dumps(ready.probe_body)
        for url in service.urls:
            words = [key_file(service), str(ready.start_seconds), f"{url}{ready.probe_path}", body]
            lines.append(f"serves {shlex.join(words)}\n")
    about = "Waits until each service answers a request, and prints the answer."
    return program([*header, "", about], FAIL, ASK, _SERVES, 'cd "$(dirname "$0")"\n' + "".join(lines))
