"""`deploy down`: stop the service and remove what Headfirst made on the hosts of this cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from headfirst.control.deployment.hosts.access import host_access
from headfirst.control.deployment.running.claim import foreign, refuse_foreign, run_lock
from headfirst.control.deployment.running.limit import limited_hosts
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.running.phases import of_down, run_phases
from headfirst.control.deployment.running.recorded import recorded
from headfirst.control.inventory.inventory import load
from headfirst.control.ownership import hosts as requests
from headfirst.control.ownership.lease import look
from headfirst.control.ownership.records import Owner
from headfirst.control.run.reporters.reporter import Reporter
from headfirst.control.run.result import RunResult
from headfirst.decide.cluster.types import Cluster


@dataclass(frozen=True)
class Target:
    """What `down` acts on: the hosts of this cluster, not those of another one (`left`)."""

    cluster: Cluster
    options: RunOptions
    hosts: Sequence[str]
    left: dict[str, Owner] = field(default_factory=dict)


def target(options: RunOptions) -> Target:
    """Ask the hosts for their owner. Raises NotReadyError where all of them belong to other clusters."""
    cluster = load(options.inventories, options.extra_vars, options.limit)
    access = host_access(cluster)
    hosts = [host.name for host in limited_hosts(cluster, options)]
    states = look([access[host] for host in hosts])
    left = foreign(cluster, states)
    own = [host for host in hosts if host not in left]
    if not own:
        refuse_foreign(cluster, states)
    limit = ",".join(own) if left else options.limit
    return Target(cluster, replace(options, limit=limit), own, left)


def data_bytes(found: Target) -> dict[str, int]:
    """Bytes of /var/lib/headfirst by host."""
    access = host_access(found.cluster)
    answers = requests.ask_all(
        [access[host] for host in found.hosts], "measure", timeout_s=requests.MEASURE_TIMEOUT_S
    )
    return {host: int(answer["bytes"]) for host, answer in answers.items()}


def down(found: Target, reporter: Reporter, *, data: bool) -> RunResult:
    """Stop Open WebUI and the ranks and remove our files; with `data`, weights and chats too."""
    extra = ["headfirst_down_data=true"] if data else []
    phases = of_down(found.cluster)
    if found.options.check:
        return run_phases(phases, found.options, found.cluster, reporter, extra=extra)
    with (
        recorded(found.cluster, found.options, "down --data" if data else "down", reporter) as shown,
        run_lock(found.cluster, found.options, "down", shown) as held,
    ):
        return run_phases(phases, found.options, found.cluster, shown, extra=extra, held=held)
