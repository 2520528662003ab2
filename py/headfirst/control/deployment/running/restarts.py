"""What serves and restarts in a run, and why: read on the hosts before the first change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.headfirst.serving.plugins.module_utils import container_spec

from headfirst.common.container_names import is_engine
from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.hosts.access import host_access
from headfirst.control.deployment.prepare import Prepared
from headfirst.control.deployment.running.role_vars.engine import engine_vars, planned_ranks
from headfirst.control.deployment.running.stages import starts_ranks
from headfirst.control.live.specifications import Present, specifications
from headfirst.control.run.events import Finding
from headfirst.decide.cluster.types import Cluster, Service
from headfirst.decide.containers.spec import Container
from headfirst.decide.engines.presets import words
from headfirst.decide.plan.restarts import CONFIG_LABEL, Difference, differences, keeping
from headfirst.decide.plan.types import Node, Plan, PlannedReplica, PlannedService

_LISTED = 12  # differences of a replica
Containers = Mapping[str, Mapping[str, Present]]  # by host and name


def announced(
    prepared: Prepared, secrets: Secrets, only: Service | None, stages: Sequence[str]
) -> list[Finding]:
    """A warning for each replica, router, page and proxy that restarts or stops, and for each service that
    keeps arguments by which a new one would differ; `stages`: () for all."""
    plan = prepared.plan
    services = [service for service in plan.services if only is None or service.name == only.name]
    ranks = starts_ranks(stages)
    nodes = [node for service in services for _, node in service.ranks]
    front = [part for part in _front(plan, services) if not stages or part[0] in stages]
    images: dict[str, dict[str, str]] = {}
    for host, container in [
        *((node.host, node.container) for node in nodes if ranks),
        *((host, container) for _, _, host, container in front),
    ]:
        images.setdefault(host, {})[container.name] = container.image
    asked = specifications([*host_access(prepared.cluster).values()], images)
    # A host that cannot be asked has no Docker yet; or the run stops there, and reports why.
    present: Containers = {host: answer for host, answer in asked.items() if isinstance(answer, dict)}
    of_replicas = (
        _of_replica(prepared, service, replica, secrets, present)
        for service in services
        for replica in service.replicas
        if ranks
    )
    of_front = (
        _of_container(title, host, container, present[host][container.name])
        for _, title, host, container in front
        if container.name in present.get(host, {})
    )
    stopping = _unplanned(prepared.cluster, present) if ranks else ()
    keeping_on = [_keeping_on(service) for service in services if ranks and service.kept_out]
    return [finding for finding in (*stopping, *of_replicas, *of_front, *keeping_on) if finding]


def _front(plan: Plan, services: list[PlannedService]) -> Iterator[tuple[str, str, str, Container]]:
    """Stage, title, host and container of what people reach."""
    for service in services:
        for router in service.routers:
            yield "router", f"The router of {service.served_model_name}", router.host, router.container
    if plan.webui:
        yield "webui", "The chat page", plan.webui.host, plan.webui.container
    if plan.proxy:
        yield "proxy", "The proxy", plan.proxy.host, plan.proxy.container


def _unplanned(cluster: Cluster, present: Containers) -> Iterator[Finding]:
    """Ranks whose service or replica left the inventory, or has another name there."""
    planned = planned_ranks(cluster)
    stopping: dict[str, list[str]] = {}
    for host in planned.keys() & present.keys():
        for name, container in present[host].items():
            if container.running and is_engine(name) and name not in planned[host]:
                stopping.setdefault(name, []).append(host)
    for name, hosts in stopping.items():
        what = f"{name} on {', '.join(sorted(hosts))} stops: the plan has no rank of that name there."
        yield Finding(id="restart", severity="warning", host=min(hosts), what=what)


def _keeping_on(service: PlannedService) -> Finding:
    added = " ".join(words({argument.flag: argument.value for argument in service.kept_out}))
    what = f"{service.served_model_name} keeps its present arguments: parsers=auto adds {added}."
    fix = "To add them with a restart, write: parsers=auto  To keep them out without this line: parsers=none"
    return Finding("parsers", "warning", service.replicas[0].nodes[0].host, what, fix=fix)


def _of_container(title: str, host: str, container: Container, present: Present) -> Finding | None:
    diff = differences(present.spec, _canonical(container.module_spec(), present)) if present.running else []
    return _finding(host, title, [*map(str, diff)]) if diff else None


def _of_replica(
    prepared: Prepared,
    service: PlannedService,
    replica: PlannedReplica,
    secrets: Secrets,
    present: Containers,
) -> Finding | None:
    serving = {
        node.rank: container
        for node in replica.nodes
        if (container := present.get(node.host, {}).get(node.container.name)) and container.running
    }
    if not serving:
        return None

    def differ(plan: Plan) -> list[Difference]:
        planned = plan.service(service.name)
        nodes = next(other for other in planned.replicas if other.index == replica.index).nodes
        changes = (
            difference
            for node in nodes
            if (container := serving.get(node.rank))
            for difference in differences(container.spec, _rank(planned, replica, node, secrets, container))
        )
        return list(dict.fromkeys(changes))

    diff = differ(prepared.plan)
    joining = [f"a rank on {node.host}" for node in replica.nodes if node.rank not in serving]
    if not diff and not joining:
        return None
    of = prepared.cluster.service(service.name)
    lines = keeping(of.settings, replica.role, diff, lambda more: differ(prepared.replanned(of, **more)))
    title = f"Replica {replica.index} of {of}"
    return _finding(replica.nodes[0].host, title, [*map(str, diff), *joining], lines)


def _finding(host: str, title: str, parts: list[str], lines: list[str] | None = None) -> Finding:
    if len(parts) > _LISTED:
        parts[_LISTED:] = [f"{len(parts) - _LISTED} more"]
    return Finding(
        id="restart",
        severity="warning",
        host=host,
        what=f"{title} restarts: {'; '.join(parts)}.",
        fix=f"To keep what runs, write: {'  '.join(lines)}" if lines else "",
    )


def _rank(
    service: PlannedService, replica: PlannedReplica, node: Node, secrets: Secrets, present: Present
) -> dict[str, Any]:
    """The specification that the role engine writes from the rank's variables."""
    variables = engine_vars(service, replica, node, secrets)
    spec = variables["engine_container"]
    if variables["engine_config"]:
        text = json.dumps(variables["engine_config"], sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()
        spec = {**spec, "labels": {**spec["labels"], CONFIG_LABEL: digest}}
    return _canonical(spec, present, replica.secret_env)


def _canonical(
    spec: Mapping[str, Any], present: Present, secret_env: dict[str, str] | None = None
) -> dict[str, Any]:
    """The planned specification as a label has it, with what is known on the host alone as it runs.

    That is the content of a file with secrets, without `secret_env`, and the ID of an image that is not there
    yet, whose name differs.
    """
    image_id = present.planned_image_id or str(present.spec.get("image_id", ""))
    planned = dict(container_spec.canonical(dict(spec), image_id, secret_env or {}))
    if not secret_env and "env_file" in planned and "env_file_sha256" in present.spec:
        planned["env_file_sha256"] = present.spec["env_file_sha256"]
    return planned
