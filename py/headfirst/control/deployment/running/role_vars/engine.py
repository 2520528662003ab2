"""Variables of the roles engine and supervisor: ranks, what keeps them, and what waits for a takeover."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from headfirst.common import container_names as names
from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.running.role_vars import HostVars, Up
from headfirst.control.deployment.running.role_vars.weights import compile_cache_hosts
from headfirst.decide import engines
from headfirst.decide.cluster.types import Cluster, Host, Replica, Service
from headfirst.decide.containers import blanks
from headfirst.decide.plan.compile_cache import PROGRAM
from headfirst.decide.plan.types import Node, PlannedReplica, PlannedService, Readiness, Standby

SUPERVISOR = "/opt/headfirst/venv/bin/headfirst-supervisor"


def replica_vars(up: Up, service: PlannedService, replica: PlannedReplica) -> HostVars:
    """Variables per host for `playbooks/serve.yml`: the ranks of one replica."""
    secrets, planned = up.secrets, planned_ranks(up.cluster)
    waiting = standby_generations(service, replica)
    supervised = supervision(service, replica, secrets)
    version = service_version(service, secrets)
    return {
        node.host: engine_vars(service, replica, node, secrets)
        | {
            "engine_ready_timeout": service.readiness.start_seconds,
            "engine_planned": planned[node.host],
            "engine_is_last": planned[node.host][-1] == node.container.name,
            "engine_supervisor": SUPERVISOR,
            "engine_supervision": supervised,
            "engine_replicas": len(service.replicas),
            "engine_changed": [
                [earlier.engine_url, earlier.role or "regular"]
                for earlier in service.replicas[: replica.index]
            ],
            "engine_version": version,
            "engine_compile_cache_travels": bool(compile_cache_hosts(up.cluster, service, replica)),
            "engine_drain_timeout": service.drain_seconds,
            # What waits beside the ranks must outlive their change.
            "engine_standbys": [{"generation": name} for name in waiting],
        }
        for node in replica.nodes
    }


def supervisor_vars(up: Up) -> HostVars:
    """Variables per host for the stage `supervisor`."""
    members = [host.address for host in up.cluster.nodes]
    return {
        host.name: {
            "supervisor_address": host.address,
            "supervisor_members": members,
            "supervisor_token": up.secrets.supervisor_token,
            "supervisor_keys": up.secrets.supervisor_keys(host.address, members),
            "supervisor_port": up.cluster.settings.supervisor_port,
        }
        for host in up.cluster.nodes
    }


def stop_vars(service: Service, replica: Replica, spares: Sequence[Host] = ()) -> HostVars:
    """Variables per host for `playbooks/stop.yml`: stopping needs the ranks and no plan.

    Spares have what waits for a takeover, or what took over.
    """
    name = service.container(replica)
    return {
        host.name: {"engine_name": name, "engine_rank": rank, "engine_supervisor": SUPERVISOR}
        for rank, host in enumerate((*replica.hosts, *spares))
    }


def rollback_vars(
    service: Service, replica: Replica, version: str, generations: Mapping[str, str]
) -> HostVars:
    """Variables per host for `playbooks/rollback.yml`: the containers on the hosts have the rest.

    `generations` are those of the version, by replica (`engine_service_ranks` has the names).
    """
    more = {
        "engine_ranks": len(replica.hosts),
        "engine_replicas": len(service.replicas),
        "engine_version": version,
        "engine_generation": generations[service.container(replica)],
        "engine_ready_timeout": service.settings.ready_timeout,
    }
    return {name: variables | more for name, variables in stop_vars(service, replica).items()}


def version_vars(service: Service) -> HostVars:
    """Variables per host for `playbooks/versions.yml` and `prune.yml`: the ranks of all replicas."""
    by_host: dict[str, list[dict[str, Any]]] = {}
    for replica in service.replicas:
        for rank, host in enumerate(replica.hosts):
            ranks = by_host.setdefault(host.name, [])
            ranks.append({"name": service.container(replica), "rank": rank})
    return {host: {"engine_service_ranks": ranks} for host, ranks in by_host.items()}


def service_version(service: PlannedService, secrets: Secrets) -> str:
    """The name of a version of the service: a digest of the containers of all its replicas."""
    ranks = [
        [replica.index, rank["engine_rank"], rank["engine_container"], rank["engine_config"]]
        + ([rank["engine_secret_env"]] if rank["engine_secret_env"] else [])
        for replica in service.replicas
        for rank in (engine_vars(service, replica, node, secrets) for node in replica.nodes)
    ]
    return hashlib.sha256(json.dumps(ranks, sort_keys=True).encode()).hexdigest()[:12]


def supervision(service: PlannedService, replica: PlannedReplica, secrets: Secrets) -> dict[str, Any]:
    """What the supervisors need to keep a replica: `engine_supervision`."""
    engine = engines.get(service.engine, service.engine_version)
    return {
        "ranks": [node.address for node in replica.nodes],
        "path_generates": service.readiness.hang_seconds is not None,
        "metrics": dataclasses.asdict(engine.metrics),
        "routers": [{"url": router.url, "key": secrets.router_key} for router in service.routers],
        "hang_seconds": service.readiness.silence_seconds,
        "start_seconds": service.readiness.start_seconds,
        **({"worker": replica.worker} if replica.worker else {}),
    }


def standby_generations(service: PlannedService, replica: PlannedReplica) -> dict[str, Standby]:
    """What the replica becomes when a spare takes over, by the names of these generations."""
    generations = {}
    for standby in service.standbys:
        if standby.replica.index == replica.index:
            secret = json.dumps(replica.secret_env, sort_keys=True) if replica.secret_env else ""
            digest = hashlib.sha256(f"{standby.model_dump_json()}{secret}".encode()).hexdigest()
            generations[f"standby-{digest[:12]}"] = standby
    return generations


def engine_vars(
    service: PlannedService, replica: PlannedReplica, node: Node, secrets: Secrets
) -> dict[str, Any]:
    """Variables of one rank."""
    engine, key = engines.get(service.engine, service.engine_version), secrets.api_key(service.name)
    path = names.engine_config(node.container.name)
    return {
        "engine_rank": node.rank,
        "engine_ranks": len(replica.nodes),
        "engine_name": node.container.name,
        "engine_container": node.container.module_spec(),
        "engine_compile_cache": node.compile_cache.model_dump() | {"program": PROGRAM}
        if node.compile_cache
        else {},
        # Only the ranks that read the file get the key.
        "engine_config": _config(service, secrets) if path in node.container.command else {},
        "engine_config_path": path,
        "engine_secret_env": replica.secret_env,
        "engine_url": replica.engine_url,
        "engine_warm_argv": _warm(service),
        "engine_model_name": service.served_model_name,
        "engine_api_key": key,
        "engine_readiness": _readiness(service.readiness),
        "engine_log": engine.log(),
    }


def _config(service: PlannedService, secrets: Secrets) -> dict[str, Any]:
    """The content of the file with the keys."""
    keys = {
        blanks.api_key_blank(service.name): secrets.api_key(service.name),
        blanks.ADMIN_KEY: secrets.engine_admin_key,
    }
    return {name: json.loads(blanks.filled(text, keys)) for name, text in service.config_file.items()}


def standby_vars(up: Up, service: PlannedService, replica: PlannedReplica) -> HostVars:
    """Variables per host for `playbooks/standby.yml`: one replica's hosts, and the spares."""
    spares = [host.name for host in up.cluster.spares]
    if not spares:
        return {}
    variables: HostVars = {
        host: {
            "engine_name": replica.nodes[0].container.name,
            "engine_is_spare": host in spares,
            "engine_config_path": names.engine_config(replica.nodes[0].container.name),
            "engine_secret_env": replica.secret_env,
            "engine_standbys": [],
        }
        for host in (*(node.host for node in replica.nodes), *spares)
    }
    for generation, standby in standby_generations(service, replica).items():
        for node in standby.replica.nodes:
            waits = _waits(service, replica, standby, node, up.secrets)
            variables[node.host]["engine_standbys"].append({"generation": generation, **waits})
    return variables


def _waits(
    service: PlannedService, replica: PlannedReplica, standby: Standby, node: Node, secrets: Secrets
) -> dict[str, Any]:
    """One host's part of a generation that waits."""
    rank = engine_vars(service, standby.replica, node, secrets)
    config = rank["engine_config"]
    return {
        "rank": node.rank,
        "ranks": len(standby.replica.nodes),
        "container": rank["engine_container"],
        "compile_cache": rank["engine_compile_cache"],
        "record": {
            "url": rank["engine_url"],
            "model": rank["engine_model_name"],
            "api_key": rank["engine_api_key"],
            "readiness": rank["engine_readiness"],
            "files": {rank["engine_config_path"]: yaml.safe_dump(config)} if config else {},
            "supervision": supervision(service, standby.replica, secrets)
            | {
                "standby": {
                    "spare": standby.address,
                    "replaces": standby.replaces,
                    "instead_of": [other.address for other in replica.nodes],
                    "instead_of_url": replica.engine_url,
                    "after_seconds": standby.after_seconds,
                }
            },
        },
    }


def planned_ranks(cluster: Cluster) -> dict[str, list[str]]:
    """Names of the engine containers that each host is to have."""
    containers: dict[str, list[str]] = {}
    for service in cluster.services:
        for replica in service.replicas:
            for host in replica.hosts:
                containers.setdefault(host.name, []).append(service.container(replica))
    return containers


def _warm(service: PlannedService) -> list[str]:
    """The job that reads the weights into the page cache; [] for none."""
    weights = service.weights
    if weights.warm_cache == "none":
        return []
    whole = ["--whole"] if weights.warm_cache == "whole" else []
    reserve = ["--reserve", str(weights.warm_reserve_bytes)]
    return ["/opt/headfirst/venv/bin/headfirst-weights", "warm", weights.directory, *reserve, *whole]


def _readiness(readiness: Readiness) -> dict[str, Any]:
    body = {
        name: value for name, value in readiness.probe_body.items() if name != "model"
    }  # the role adds it
    return {**readiness.model_dump(include={"path", "probe_path", "answer"}), "probe_body": body}
