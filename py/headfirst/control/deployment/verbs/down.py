"""`deploy down`: stop the service and remove what Headfirst made on the hosts of this cluster."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from headfirst.control.deployment.hosts.access import host_access
from headfirst.control.deployment.running.claim import foreign, refuse_foreign, run_lock
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.running.phases import of_down
from headfirst.control.deployment.running.playbooks import run_phases
from headfirst.control.deployment.running.recorded import recorded
from headfirst.control.inventory.inventory import load
from headfirst.control.ownership import requests
from headfirst.control.ownership.lease import look
from headfirst.control.ownership.records import Owner
from headfirst.control.run.reporters.reporter import Reporter
from headfirst.control.run.result import RunResult
from headfirst.decide.cluster.types import Cluster, Service
from headfirst.decide.model import families


@dataclass(frozen=True)
class DownTarget:
    """What `down` acts on: the cluster, limited to hosts that are not another one's (`foreign`)."""

    cluster: Cluster
    options: RunOptions
    foreign: dict[str, Owner] = field(default_factory=dict)
    service: Service | None = None  # the only one that is stopped; None: all, with what they share


def target(options: RunOptions) -> DownTarget:
    """What a command line names. Raises as target_of does."""
    cluster = load(options.inventories, options.extra_vars, options.limit)
    service = cluster.whole_service(options.service)
    return target_of(cluster.of_service(service) if service else cluster, options)


def target_of(cluster: Cluster, options: RunOptions) -> DownTarget:
    """Ask the hosts for their owner. Raises NotReadyError where all of them belong to other clusters."""
    access = host_access(cluster)
    states = look([access[host.name] for host in cluster.limited_hosts])
    foreign_hosts = foreign(cluster, states)
    if len(foreign_hosts) == len(states):
        refuse_foreign(cluster, states)
    if foreign_hosts:
        cluster = cluster.limited(host for host in states if host not in foreign_hosts)
    return DownTarget(cluster, options, foreign_hosts, cluster.whole_service(options.service))


def data_bytes(target: DownTarget) -> dict[str, int]:
    """Bytes of /var/lib/headfirst by host."""
    access = host_access(target.cluster)
    hosts = [access[host.name] for host in target.cluster.limited_hosts]
    answers = requests.ask_all(hosts, "measure", timeout_s=requests.MEASURE_TIMEOUT_S)
    return {host: int(answer["bytes"]) for host, answer in answers.items()}


def remaining(target: DownTarget) -> list[str]:
    """What still refers to the service that was stopped alone."""
    service, cluster = target.service, target.cluster
    if service is None:
        return []
    task = service.settings.task or families.task_of_id(service.model_id)
    places = {
        "chat_page": task in ("chat", "vision"),
        "proxy": cluster.has_proxy,
        "monitoring": cluster.monitoring is not None,
    }
    return [place for place, stays in places.items() if stays]


def down(target: DownTarget, reporter: Reporter, *, data: bool) -> RunResult:
    """Stop Open WebUI and the ranks and remove our files; with `data`, weights and chats too.

    Of a target with a service: its routers and ranks, and what is theirs.
    """
    cluster, options = target.cluster, target.options
    phases = of_down(cluster, target.service)
    if data:
        options = replace(options, extra_vars=[*options.extra_vars, "headfirst_down_data=true"])
    if options.check:
        return run_phases(phases, options, cluster, reporter)
    with (
        recorded(cluster, options, "down --data" if data else "down", reporter) as shown,
        run_lock(cluster, options, "down", shown) as lease,
    ):
        return run_phases(phases, options, cluster, shown, lease=lease)
