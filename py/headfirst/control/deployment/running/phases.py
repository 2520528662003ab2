"""The runs of Ansible that carry out a verb, in order: one for one replica without spares, else several.

A role runs one replica: its ranks start and stop together. Replicas follow one another, so that a change that
does not serve ends at the first one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.running.artifacts import Artifacts, registry_logins
from headfirst.control.deployment.running.role_vars import (
    HostVars,
    Up,
    engine,
    front,
    merged,
    monitoring,
    weights,
)
from headfirst.control.deployment.running.role_vars.hosts import hardware_vars
from headfirst.control.deployment.running.stages import ALONE, STAGES, Scope
from headfirst.decide.cluster.types import Cluster, Service
from headfirst.decide.plan.types import Plan, PlannedService

_ALONE = (*ALONE, "stop_monitoring.yml")


@dataclass(frozen=True)
class Phase:
    """One run: a playbook, and the variables of the hosts that it acts on."""

    playbook: str
    variables: HostVars


# From the run and what it is for; no variables where the stage is not needed.
_VARIABLES: Mapping[tuple[Scope, str], Callable[..., HostVars]] = {
    ("cluster", "check.yml"): lambda up: hardware_vars(up.cluster, up.plan, up.peers),
    ("cluster", "machine.yml"): lambda up: merged(
        hardware_vars(up.cluster, up.plan, up.peers), weights.tools_vars(up), engine.supervisor_vars(up)
    ),
    ("service", "image.yml"): weights.service_vars,
    ("service", "weights.yml"): weights.service_vars,
    ("companion", "weights.yml"): weights.companion_vars,
    ("service", "router.yml"): front.router_vars,
    ("replica", "serve.yml"): engine.replica_vars,
    ("replica", "standby.yml"): engine.standby_vars,
    ("replica", "compile_cache.yml"): weights.compile_cache_vars,
    ("service", "prune.yml"): lambda up, service: (
        engine.version_vars(up.cluster.service(service.name)) if len(service.replicas) > 1 else {}
    ),
    ("service", "deregister.yml"): front.deregister_vars,
    ("cluster", "webui.yml"): front.webui_vars,
    ("cluster", "proxy.yml"): front.proxy_vars,
    ("cluster", "close.yml"): lambda up: (
        hardware_vars(up.cluster, up.plan, up.peers) if up.plan.proxy else {}
    ),
    ("cluster", "monitoring.yml"): monitoring.monitoring_vars,
}


# What comes before an image can be asked.
UNTIL_IMAGE = ("check.yml", "machine.yml", "image.yml")


def divided_at(playbooks: Collection[str], phases: Sequence[Phase]) -> tuple[list[Phase], list[Phase]]:
    """The phases, of `of_up` with `divided`, that run these playbooks, and the others."""
    first = [phase for phase in phases if phase.playbook in playbooks]
    return first, [phase for phase in phases if phase not in first]


def of_up(
    cluster: Cluster,
    plan: Plan,
    secrets: Secrets,
    files: Artifacts,
    service: Service | None = None,
    *,
    divided: bool = False,
) -> list[Phase]:
    """`deploy up` after the plan is made; with `service` it brings no other one.

    What all services share follows the whole plan: the chat page, the proxy, monitoring. `divided`: each
    playbook is a phase of its own.
    """
    services = [planned for planned in plan.services if service is None or planned.name == service.name]
    # A host of another service may be away.
    peers = cluster.limited_hosts if service else None
    stages = _stages(Up(cluster, plan, secrets, files, services, peers))
    phases = [phase for phase in stages if phase.variables]
    single_run = _is_single_run(cluster) and not plan.services[0].companions and not divided
    return _joined("up.yml", phases) if single_run else phases


def _stages(up: Up) -> Iterator[Phase]:
    """The runs of STAGES. Stages in a row with one scope run for one service or replica after the other."""
    playbooks = dict.fromkeys((stage.scope, stage.playbook) for stage in STAGES)
    logins = registry_logins(up.cluster)
    for scope, row in itertools.groupby(playbooks, key=lambda pair: pair[0]):
        names = [playbook for _, playbook in row]
        for subject in _subjects(scope, up.services):
            for name in names:
                variables = _VARIABLES[scope, name](up, *subject)
                yield Phase(name, {host: own_vars | logins for host, own_vars in variables.items()})


def _subjects(scope: Scope, services: Sequence[PlannedService]) -> list[tuple[object, ...]]:
    """What a stage runs for, one run each."""
    match scope:
        case "cluster":
            return [()]
        case "service":
            return [(service,) for service in services]
        case "companion":
            return [(service, companion) for service in services for companion in service.companions]
        case "replica":
            return [(service, replica) for service in services for replica in service.replicas]


def of_down(cluster: Cluster, service: Service | None = None) -> list[Phase]:
    """`deploy down`: the proxy, the chat page, the routers, every replica, then files.

    With `service`: its routers and replicas alone.
    """
    services = cluster.services if service is None else (service,)
    stops = [
        *(Phase("stop_router.yml", front.router_stop_vars(stopped)) for stopped in services),
        *(
            Phase("stop.yml", engine.stop_vars(stopped, replica, cluster.spares))
            for stopped in services
            for replica in stopped.replicas
        ),
    ]
    if service is not None:
        return [phase for phase in stops if phase.variables]
    phases = [
        Phase("stop_monitoring.yml", monitoring.monitoring_stop_vars(cluster)),
        Phase("stop_page.yml", front.page_stop_vars(cluster)),
        *stops,
        Phase("clean.yml", {host.name: {} for host in cluster.hosts}),
    ]
    phases = [phase for phase in phases if phase.variables]
    return _joined("down.yml", phases) if _is_single_run(cluster) else phases


def _is_single_run(cluster: Cluster) -> bool:
    return sum(len(service.replicas) for service in cluster.services) == 1 and not cluster.spares


def _joined(playbook: str, phases: Sequence[Phase]) -> list[Phase]:
    """The phases as one run of `playbook`, which imports theirs; those of _ALONE stay before or after it."""
    whole = Phase(playbook, merged(*(phase.variables for phase in phases if phase.playbook not in _ALONE)))
    first = next(number for number, phase in enumerate(phases) if phase.playbook not in _ALONE)
    alone = [phase for phase in phases if phase.playbook in _ALONE]
    return [*alone[:first], whole, *alone[first:]]
