"""Variables of the roles that bring what the ranks need: node_tools, engine_image, weights."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ansible_collections.headfirst.serving.plugins.module_utils import compile_cache
from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import (
    EXTRAS,
    FOLDER,
    HUBS,
    SOURCES,
)

from headfirst.control.deployment.lab_nodes import shared_demo
from headfirst.control.deployment.running.artifacts import engine_image, image_source
from headfirst.control.deployment.running.role_vars import HostVars, Up
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.plan.host import outbound
from headfirst.decide.plan.types import Companion, Plan, PlannedReplica, PlannedService, WeightsMember

# What is brought as it is, all of it to every host.
_WHOLE = {
    "weights_shared": "stage",
    "weights_convert_to_bf16": False,
    "weights_keep_fp8": False,
    "weights_hidden_layers": 0,
    "weights_layers": {},
}


def tools_vars(up: Up) -> HostVars:
    """Variables per host for the stage `tools`."""
    fetched: dict[str, list[str]] = {}
    for service in up.plan.services:
        for member in service.weights.members:
            if member.fetches:
                fetched.setdefault(member.host, []).extend(_sources(service))
    return {
        host.name: {
            "node_tools_wheel": str(up.files.node_wheel),
            "node_tools_extras": [
                source for source in dict.fromkeys(fetched.get(host.name, ())) if source in EXTRAS
            ],
        }
        for host in up.cluster.nodes
    }


def service_vars(up: Up, service: PlannedService) -> HostVars:
    """Variables per host for the stages `image` and `weights` of one service."""
    name, files = engine_image(service), up.files
    image = {
        "engine_image_name": name,
        "engine_image_programs": service.image_programs,
        **image_source(files.engines.get(service.name) or files.images.get(name), "engine_image_"),
    }
    return {member.host: image | _weights(up, service, member) for member in service.weights.members}


def companion_vars(up: Up, service: PlannedService, companion: Companion) -> HostVars:
    """Variables per host for the stage `weights` of what a service fetches beside its model."""
    folder, _, name = companion.directory.rpartition("/")
    overrides = {
        "weights_model": companion.id,
        "weights_source": companion.source,
        "weights_revision": companion.revision or "",
        "weights_dir": folder,
        "weights_name": name,
        **_WHOLE,
    }
    return {
        member.host: _weights(up, service, member)
        | overrides
        | {"weights_hub_token": hub_token(companion.source) if member.fetches else ""}
        for member in service.weights.members
    }


def compile_cache_hosts(cluster: Cluster, service: PlannedService, replica: PlannedReplica) -> list[str]:
    """The hosts that start as this replica does, its own first; [] where there are no others."""
    own = {node.host: node.compile_cache for node in replica.nodes}
    nodes = [node.host for other in _alike(service, replica) for node in other.nodes]
    hosts = list(dict.fromkeys([*own, *nodes, *(host.name for host in cluster.spares)]))
    return hosts if all(own.values()) and len(hosts) > len(own) else []


def compile_cache_vars(up: Up, service: PlannedService, replica: PlannedReplica) -> HostVars:
    """Variables per host for `playbooks/compile_cache.yml`: all get what each rank of a replica compiled.

    Of replicas that start alike the first one gives it.
    """
    is_first = _alike(service, replica)[0].index == replica.index
    hosts = compile_cache_hosts(up.cluster, service, replica) if is_first else []
    members = {member.host: member for member in service.weights.members}
    own = [(node.host, node.compile_cache.name) for node in replica.nodes if node.compile_cache]
    ranks = (node for each in up.plan.services for _, node in each.ranks)
    planned = sorted({node.compile_cache.name for node in ranks if node.compile_cache})
    return {
        host: _weights(up, service, members[host])
        | {
            "weights_source": FOLDER.name,
            "weights_revision": "",
            "weights_dir": compile_cache.FOLDER,
            "weights_readers": {},
            "weights_hub_token": "",
            **_WHOLE,
            # The same on all hosts, which do each item together.
            "compile_caches": [
                {"name": name, "members": [_address(members[each]) for each in dict.fromkeys([head, *hosts])]}
                for head, name in own
            ],
            "compile_caches_planned": planned,
            "compile_caches_own": [name for head, name in own if head == host],
        }
        for host in hosts
    }


def _alike(service: PlannedService, replica: PlannedReplica) -> list[PlannedReplica]:
    caches = [node.compile_cache for node in replica.nodes]
    return [other for other in service.replicas if [node.compile_cache for node in other.nodes] == caches]


def _proxies(cluster: Cluster, member: WeightsMember) -> dict[str, str]:
    host = next(host for host in cluster.hosts if host.name == member.host)
    return outbound.variables(cluster, host) | outbound.secret_variables(cluster, host)


def _sources(service: PlannedService) -> list[str]:
    return [service.weights.source, *(companion.source for companion in service.companions)]


def _address(member: WeightsMember) -> str:
    return ",".join(member.addresses)


def _weights(up: Up, service: PlannedService, member: WeightsMember) -> dict[str, Any]:
    cluster, settings = up.cluster, up.cluster.service(service.name).settings
    demo, members = service.weights.source == "demo", service.weights.members
    return {
        "weights_model": str(shared_demo(service.weights.model)) if demo else service.weights.model,
        "weights_source": FOLDER.name if demo else service.weights.source,
        "weights_revision": service.weights.revision or "",
        "weights_dir": settings.weights_dir,
        "weights_shared": "stage" if demo else settings.weights_shared,
        "weights_name": service.weights.directory.rpartition("/")[2],
        "weights_convert_to_bf16": service.convert_to_bf16,
        "weights_keep_fp8": service.weights.keep_fp8,
        "weights_address": _address(member),
        "weights_members": [_address(other) for other in members],
        "weights_hidden_layers": service.weights.hidden_layers,
        "weights_layers": {_address(other): other.layers for other in members if other.layers},
        "weights_connections": service.weights.connections,
        "weights_fetch": service.weights.fetch,
        "weights_encrypt": service.weights.encrypt,
        "weights_token": up.secrets.weights_token,
        "weights_hub_token": hub_token(service.weights.source) if member.fetches else "",
        # Nothing between the hosts reads these: of a member that fetches, the hub's client does.
        "weights_environment": hub_environment() | (_proxies(cluster, member) if member.fetches else {}),
        # The supervisor starts all ranks of the replica again.
        "weights_readers": {
            node.container.name: f"sudo {cluster.settings.container_runtime} stop {node.container.name}"
            for replica in service.replicas
            for node in replica.nodes
            if node.host == member.host
        },
    }


def hub_token(source: str) -> str:
    """The user's token for the hub `source`, or an empty string."""
    return os.environ.get(SOURCES[source].token_variable, "")


def hub_tokens(plan: Plan) -> list[str]:
    """The user's tokens for every hub that the plan fetches from."""
    sources = {source: None for service in plan.services for source in _sources(service)}
    return [token for source in sources if (token := hub_token(source))]


def hub_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What this machine is set to use: mirrors, and HTTP alone."""
    names = [name for hub in HUBS.values() for name in (hub.endpoint_variable, *hub.settings)]
    return {name: environment[name] for name in names if environment.get(name)}
