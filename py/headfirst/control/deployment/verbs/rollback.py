"""`deploy rollback`: all replicas of a service run the version that served before the present one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.headfirst.serving.plugins.plugin_utils import service_change

from headfirst.common.errors import InputError
from headfirst.common.untrusted import UntrustedError
from headfirst.control.deployment.running.claim import run_lock
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.running.phases import Phase
from headfirst.control.deployment.running.playbooks import run_phases
from headfirst.control.deployment.running.recorded import recorded
from headfirst.control.deployment.running.role_vars import HostVars
from headfirst.control.deployment.running.role_vars.engine import rollback_vars, version_vars
from headfirst.control.inventory.inventory import load
from headfirst.control.run.environment import require_all
from headfirst.control.run.reporters.reporter import Reporter
from headfirst.control.run.result import RunResult, joined
from headfirst.decide.cluster.types import Cluster, Service


@dataclass(frozen=True)
class Version:
    """A version of a service: its name, when it served (seconds since 1970), its generation by container."""

    name: str
    served_at: float
    generations: Mapping[str, str]


def previous(service: Service, stats: Mapping[str, Any]) -> Version | None:
    """The version that served before the present one on all replicas; None where there is none.

    `stats` is what `playbooks/versions.yml` published, by host. UntrustedError: a host cannot have it.
    """
    ranks = [rank for host in service.hosts for rank in _ranks(stats.get(host.name, []), host.name)]
    by_replica = service_change.by_replica(ranks)
    replicas = {name: by_replica.get(name, []) for name in map(service.container, service.replicas)}
    before = service_change.previous(replicas)
    if not before["version"]:
        return None
    return Version(before["version"], before["served_at"], before["generations"])


def _ranks(document: Any, host: str) -> list[dict[str, Any]]:
    try:
        return service_change.published(document, host)
    except ValueError as error:
        raise UntrustedError(f"its generations are refused: {error}", where=host) from None


@dataclass(frozen=True)
class Rollback:
    """The version that each service returned to, by the service; None: it has none, and was left alone."""

    result: RunResult
    versions: dict[str, Version | None]


def rollback(options: RunOptions, reporter: Reporter) -> Rollback:
    """Start the previous version on all replicas. InputError where no service has one."""
    cluster = load(options.inventories, options.extra_vars)
    services = _chosen(cluster, options.service)
    require_all(max(len(replica.hosts) for service in services for replica in service.replicas))
    with (
        recorded(cluster, options, "rollback", reporter) as shown,
        run_lock(cluster, options, "rollback", shown) as lease,
    ):
        results: list[RunResult] = []
        versions: dict[str, Version | None] = {}

        def run(playbook: str, variables: HostVars) -> RunResult:
            """On its own hosts: the plays are of all hosts with ranks, also those of other services."""
            limited = cluster.limited(variables)
            results.append(run_phases([Phase(playbook, variables)], options, limited, shown, lease=lease))
            return results[-1]

        for service in services:
            versions[str(service)] = previous(service, run("versions.yml", version_vars(service)).stats)
        if not any(versions.values()):
            raise InputError(
                "there is no version to return to: no other one has served on all replicas",
                where=str(options.inventories[0]),
                hint="Change the inventory and run: deploy up " + str(options.inventories[0]),
            )
        for service in services:
            if version := versions[str(service)]:
                for replica in service.replicas:
                    run("rollback.yml", rollback_vars(service, replica, version.name, version.generations))
    return Rollback(joined(results), versions)


def _chosen(cluster: Cluster, chosen: str | None) -> list[Service]:
    """The services that `--service` names. InputError where it names one of several replicas."""
    services = {service.name: service for service, _ in cluster.chosen(chosen)}
    several = [service for service in services.values() if len(service.replicas) > 1]
    if several and "/" in (chosen or ""):
        raise InputError(
            f"the replicas of {several[0]} return to a version together",
            hint=f"Write: deploy rollback {cluster.inventories[0]} --service {several[0]}",
        )
    return list(services.values())
