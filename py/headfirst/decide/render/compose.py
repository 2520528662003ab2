"""Docker Compose: one file a host. Its format is that of docker-compose 1.29 and of Compose v2 alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ansible_collections.headfirst.serving.plugins.module_utils.container_spec import FIELDS

from headfirst.decide.plan.types import Plan
from headfirst.decide.render import secret_files, shell
from headfirst.decide.render.files import File, Files, documents, numbered, script
from headfirst.decide.render.host_parts import (
    ASK_SCRIPT,
    HostPart,
    HostParts,
    RenderedRank,
    ask_script,
    hosts,
    secrets,
)

ONE_HOST = "compose.yaml"


def files(plan: Plan, header: Sequence[str]) -> Files:
    """`compose.yaml` for a plan of one host, else a numbered file for each, the head's first."""
    host_parts = hosts(plan)
    alone = len(host_parts) == 1
    host_files = {
        ONE_HOST if alone else f"{numbered(host.name, index, len(host_parts))}.yaml": File(
            documents(_about(header, host), _host(host, alone=alone))
        )
        for index, host in enumerate(host_parts)
    }
    return {
        secret_files.SCRIPT: script(secret_files.make_script(header, plan, secrets(host_parts))),
        **host_files,
        ASK_SCRIPT: script(ask_script(header, plan)),
    }


def _about(header: Sequence[str], host: HostParts) -> list[str]:
    return [
        *header,
        "",
        f"Host {host.name} ({host.address}): {'; '.join(part.what for part in host.parts)}.",
        f"The folder secrets/ beside this file comes from {secret_files.SCRIPT}.",
    ]


def _host(host: HostParts, *, alone: bool) -> dict[str, Any]:
    named = [part.secret for part in host.parts if part.secret and part.rank]
    services = {_name(part): _service(part, host.parts, alone=alone) for part in host.parts}
    mounted = {secret.name: {"file": f"./{secret_files.FOLDER}/{secret.name}"} for secret in named}
    return {"services": services, **({"secrets": mounted} if mounted else {})}


def _name(part: HostPart) -> str:
    return part.container.name.removeprefix("headfirst-")


def _service(part: HostPart, parts: Sequence[HostPart], *, alone: bool) -> dict[str, Any]:
    container = part.container
    service: dict[str, Any] = {"container_name": container.name}
    service |= {
        field.compose: value
        for name, field in FIELDS.items()
        if field.compose and (value := getattr(container, name))
    }
    service |= {"entrypoint": [container.entrypoint]} if container.entrypoint else {}
    service |= {"deploy": _gpus(container.gpus)} if container.gpus else {}
    if container.env_file:
        beside = [
            f"./{secret_files.FOLDER}/{file.name}" for file in part.files if file.path == container.env_file
        ]
        service["env_file"] = beside or [container.env_file]
    service |= _files(part)
    if part.rank and part.rank.number == 0 and part.secret:
        service["healthcheck"] = _healthcheck(part.rank, part.secret.path)
    # On several hosts the head's engine waits for the workers, which start later.
    if (
        not part.rank
        and alone
        and (waits := {_name(other): {"condition": "service_healthy"} for other in parts if other.rank})
    ):
        service["depends_on"] = waits
    escaped: dict[str, Any] = _escaped(service)
    return escaped


def _files(part: HostPart) -> dict[str, Any]:
    """Volumes, and the secrets, which come from files beside the Compose file."""
    volumes = list(part.container.volumes)
    if part.secret is None or part.rank is None:
        return {"volumes": volumes} if volumes else {}
    volumes = [volume for volume in volumes if not volume.startswith(f"{part.secret.path}:")]
    return {"volumes": volumes, "secrets": [{"source": part.secret.name, "target": part.secret.path}]}


def _gpus(gpus: str) -> dict[str, Any]:
    which = {"count": "all"} if gpus == "all" else {"device_ids": gpus.removeprefix("device=").split(",")}
    return {
        "resources": {"reservations": {"devices": [{"driver": "nvidia", **which, "capabilities": ["gpu"]}]}}
    }


def _healthcheck(rank: RenderedRank, config: str) -> dict[str, Any]:
    ready, head = rank.service.readiness, rank.replica.nodes[0]
    url = shell.probe_url(head.address, rank.replica.engine_port, ready)
    return {
        "test": ["CMD", "python3", "-c", shell.PROBE, url, config],
        "interval": f"{shell.PROBE_INTERVAL_S}s",
        "timeout": f"{shell.PROBE_TIMEOUT_S}s",
        "retries": 3,
        "start_period": f"{ready.start_seconds}s",
    }


def _escaped(value: Any) -> Any:
    """Compose takes $ for the beginning of a variable, in every text."""
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, dict):
        return {key: _escaped(below) for key, below in value.items()}
    return [_escaped(below) for below in value] if isinstance(value, list) else value
