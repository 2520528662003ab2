"""The runs of Ansible that carry out a verb, in order: one for one replica without spares, else several.

A role runs one replica: its ranks start and stop together. Replicas follow one another, so that a change that
does not serve ends at the first one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headfirst.common.errors import InputError
from headfirst.control.credentials.secrets import Secrets
from headfirst.control.deployment.running.artifacts import Artifacts
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.running.role_vars import HostVars, merged, with_sources
from headfirst.control.deployment.running.role_vars.engine import (
    replica_vars,
    standby_vars,
    stop_vars,
    supervisor_vars,
    version_vars,
)
from headfirst.control.deployment.running.role_vars.front import (
    deregister_vars,
    proxy_stop_vars,
    proxy_vars,
    router_stop_vars,
    router_vars,
    webui_stop_vars,
    webui_vars,
)
from headfirst.control.deployment.running.role_vars.hosts import hardware_vars
from headfirst.control.deployment.running.role_vars.monitoring import (
    monitoring_stop_vars,
    monitoring_vars,
)
from headfirst.control.deployment.running.role_vars.weights import (
    adapter_vars,
    service_vars,
    tools_vars,
)
from headfirst.control.deployment.running.role_vars.whole import role_vars
from headfirst.control.deployment.running.stages import run_stages
from headfirst.control.deployment.running.tags import playbook_tags
from headfirst.control.ownership.lease import Held
from headfirst.control.run.reporters.reporter import Reporter
from headfirst.control.run.result import RunResult, joined
from headfirst.decide.cluster.types import Cluster
from headfirst.decide.plan.types import Plan


@dataclass(frozen=True)
class Phase:
    """One run: a playbook, and the variables of the hosts that it acts on; `title` names whose."""

    playbook: str
    variables: HostVars
    title: str = ""


def of_up(cluster: Cluster, plan: Plan, secrets: Secrets, files: Artifacts) -> list[Phase]:
    """`deploy up` after the plan is made."""
    watching = monitoring_vars(cluster, plan, secrets, files)
    last = [Phase("monitoring.yml", watching)] if watching else []
    if _is_one_run(cluster) and not plan.services[0].adapters:
        (service,) = plan.services
        routers = merged(router_vars(cluster, service, secrets, files), deregister_vars(service, secrets))
        return [Phase("up.yml", merged(role_vars(cluster, plan, secrets, files), routers)), *last]
    hosts = hardware_vars(cluster, plan)
    phases = [
        Phase("check.yml", hosts),
        Phase(
            "machine.yml",
            merged(hosts, tools_vars(cluster, plan, files), supervisor_vars(cluster, secrets)),
        ),
    ]
    for service in plan.services:
        own, title = service_vars(cluster, service, secrets, files), service.served_model_name
        phases += [Phase("image.yml", own, title), Phase("weights.yml", own, title)]
        phases += [
            Phase("weights.yml", adapter_vars(cluster, service, adapter, secrets), f"{title}, {adapter.name}")
            for adapter in service.adapters
        ]
    routed = [service for service in plan.services if service.routers]
    for service in routed:
        own = router_vars(cluster, service, secrets, files)
        phases.append(Phase("router.yml", own, service.served_model_name))
    for service in plan.services:
        for number in service.replicas:
            title = f"{service.served_model_name}, replica {number.index}"
            phases.append(Phase("serve.yml", replica_vars(cluster, service, number, secrets), title))
            if cluster.spares:
                phases.append(Phase("standby.yml", standby_vars(cluster, service, number, secrets), title))
        if len(service.replicas) > 1:
            own = version_vars(cluster.service(service.name))
            phases.append(Phase("prune.yml", own, service.served_model_name))
    for service in routed:
        phases.append(Phase("deregister.yml", deregister_vars(service, secrets), service.served_model_name))
    if plan.webui is not None:
        phases.append(Phase("webui.yml", webui_vars(plan, secrets, files)))
    if plan.proxy is not None:
        phases.append(Phase("proxy.yml", proxy_vars(cluster, plan, secrets, files)))
    return [*phases, *last]


def of_down(cluster: Cluster) -> list[Phase]:
    """`deploy down`: the proxy, the chat page, the routers, every replica, then files."""
    stops = [
        Phase("stop.yml", stop_vars(service, number, cluster.spares), f"{service}, replica {number.index}")
        for service in cluster.services
        for number in service.replicas
    ]
    routers = [
        Phase("stop_router.yml", router_stop_vars(service), str(service))
        for service in cluster.services
        if service.routers
    ]
    page = merged(webui_stop_vars(cluster), proxy_stop_vars(cluster))
    every: HostVars = {host.name: {} for host in cluster.hosts}
    watching = monitoring_stop_vars(cluster)
    first = [Phase("stop_monitoring.yml", watching)] if watching else []
    if _is_one_run(cluster):
        own = merged(every, stops[0].variables, page, *(one.variables for one in routers))
        return [*first, Phase("down.yml", own)]
    return [*first, Phase("stop_page.yml", page), *routers, *stops, Phase("clean.yml", every)]


def run_phases(
    phases: Sequence[Phase],
    options: RunOptions,
    cluster: Cluster,
    reporter: Reporter,
    *,
    secrets: Sequence[str] = (),
    extra: Sequence[str] = (),
    sources: HostVars | None = None,
    held: Held | None = None,
) -> RunResult:
    """Run one after the other, on the hosts that --limit leaves. Raises HeadfirstError where one fails.

    `sources` are variables by host from where roles take what they install. `held` is the run's lock:
    no phase begins after it is lost.
    """
    results = []
    for phase, limited in _limited(phases, options, cluster):
        if held is not None:
            held.confirm()
        results.append(
            run_stages(
                phase.playbook,
                options,
                limited,
                with_sources(phase.variables, sources or {}),
                reporter,
                secrets=secrets,
                extra=extra,
            )
        )
    if not results:
        raise InputError(
            "no stage of -t acts on a host of --limit",
            where=str(cluster.inventories[0]),
            hint="`deploy plan` shows which host runs what.",
        )
    return joined(results)


def _limited(
    phases: Sequence[Phase], options: RunOptions, cluster: Cluster
) -> Iterator[tuple[Phase, Cluster]]:
    """The phases that --tags and --limit leave, each with the cluster limited to its hosts."""
    if len(phases) == 1:
        yield phases[0], cluster
        return
    named = {host.name for host in cluster.limited_hosts}
    for phase in phases:
        tags = playbook_tags(phase.playbook)
        hosts = [name for name in phase.variables if name in named]
        if hosts and (not options.tags or set(options.tags) & set(tags)):
            yield phase, cluster.limited(hosts)


def _is_one_run(cluster: Cluster) -> bool:
    return sum(len(service.replicas) for service in cluster.services) == 1 and not cluster.spares
