"""`deploy check`: what prevents the deployment on the hosts. Changes nothing.

With --comm the ranks talk to each other, in the engine's image; nothing stays on the hosts. The report comes
from plugins/plugin_utils/comm_rules.py; --json prints it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pydantic import ValidationError

from headfirst.common.errors import InputError, NotReadyError
from headfirst.common.untrusted import UntrustedError
from headfirst.control.deployment.hosts.access import host_access
from headfirst.control.deployment.prepare import prepare
from headfirst.control.deployment.running.claim import peek, run_lock
from headfirst.control.deployment.running.options import Backend, RunOptions
from headfirst.control.deployment.running.playbooks import run_stages
from headfirst.control.deployment.running.recorded import recorded
from headfirst.control.deployment.running.role_vars import HostVars
from headfirst.control.deployment.running.role_vars.hosts import check_vars
from headfirst.control.run.comm import Comm
from headfirst.control.run.environment import require_all
from headfirst.control.run.events import Finding
from headfirst.control.run.failures import to_error
from headfirst.control.run.reporters.recording import RecordingReporter
from headfirst.control.run.reporters.reporter import QuietReporter, Reporter
from headfirst.control.run.result import RunResult
from headfirst.decide.cluster.types import Cluster, Host
from headfirst.decide.plan.host import rdma
from headfirst.decide.plan.types import Node, Plan, PlannedReplica, PlannedService

BYTES = 8 / 1e9  # a second, in Gbit/s
_MOST_PAIRS = 100  # that did not meet are recorded; of the others their number


def comm(options: RunOptions, reporter: Reporter, backend: Backend | None) -> Comm:
    """What the ranks found; `errors` in it prevent serving. `backend`: gloo, and nccl where GPUs serve.

    Raises NotReadyError where the test could not be made at all.
    """
    if options.limit:
        raise InputError("the test needs all ranks", hint="Leave out --limit.")
    prepared = prepare(options.inventories, options.extra_vars, probe=True)
    cluster = prepared.cluster
    service, replica = _chosen(cluster, prepared.plan, options)
    require_all(len(replica.nodes))
    if backend == "nccl" and service.device == "cpu":
        raise InputError("NCCL needs GPUs, and engine_device is cpu", hint="Use --backend gloo.")
    by_device: list[Backend] = ["gloo", "nccl"] if service.device == "cuda" else ["gloo"]
    backends = [backend] if backend else by_device
    with recorded(cluster, options, "check --comm", reporter) as shown:
        report = _measure(_variables(cluster, service, replica, backends), options, cluster, shown)
        keep_comm(shown, report)
    return report


def keep_comm(reporter: Reporter, report: Comm) -> None:
    """Record the result of a test; pairs that met are counted only."""
    if isinstance(reporter, RecordingReporter):
        apart = [pair.model_dump() for pair in report.pairs if not pair.ok]
        reporter.recording.comm = {
            **report.model_dump(exclude={"pairs", "findings"}),
            "connections": len(report.pairs),
            "failed_connections": len(apart),
            "failed_pairs": apart[:_MOST_PAIRS],
            "findings": [asdict(finding) for finding in report.findings],
        }


def _measure(variables: HostVars, options: RunOptions, cluster: Cluster, reporter: Reporter) -> Comm:
    with run_lock(cluster, options, "check --comm", reporter):
        limited = cluster.limited(variables)
        result = run_stages("comm.yml", options, limited, variables, reporter, may_fail=True)
        if result.cancelled:
            # Ansible was interrupted before it could tidy up; the test would end by itself, but later.
            stop = RunOptions(options.inventories)
            nothing: HostVars = {host: {} for host in variables}
            run_stages("comm_stop.yml", stop, limited, nothing, QuietReporter(), may_fail=True)
    if "comm" not in result.stats or result.cancelled or result.unreachable:
        error = to_error(result, host_access(cluster), cluster.inventories[0])
        raise error if result.cancelled else NotReadyError(error.what, where=error.where, hint=error.hint)
    return _report(result.stats["comm"], result.findings)


def _report(told: Any, findings: Sequence[Finding]) -> Comm:
    """The report with its types proven: its texts and figures come from the hosts."""
    try:
        return Comm.model_validate({**told, "findings": findings})
    except (ValidationError, TypeError):
        raise UntrustedError("the report of a host is not a result of the communication test") from None


def _chosen(cluster: Cluster, plan: Plan, options: RunOptions) -> tuple[PlannedService, PlannedReplica]:
    """The replica that --service names, else the first that has several ranks."""
    candidates = [
        (service, replica)
        for service in plan.services
        for replica in service.replicas
        if cluster.matches(options.service, service.name, replica.index)
        and service.sized(replica).world_size > 1
    ]
    if not candidates:
        raise InputError(
            "no replica has several ranks: one rank alone has no peer",
            where=str(options.inventories[0]),
        )
    return candidates[0]


def _variables(
    cluster: Cluster, service: PlannedService, replica: PlannedReplica, backends: list[Backend]
) -> HostVars:
    hosts = {host.name: host for host in cluster.ranks}
    return {node.host: _node(service, replica, node, hosts[node.host], backends) for node in replica.nodes}


def _node(
    service: PlannedService, replica: PlannedReplica, node: Node, host: Host, backends: list[Backend]
) -> dict[str, Any]:
    rate = host.network_rate or host.link_rate or 0
    return {
        "comm_check_rank": node.rank,
        "comm_check_ranks_per_node": service.sized(replica).world_size // len(replica.nodes),
        "comm_check_address": node.address,
        "comm_check_rendezvous_port": replica.dist_port,
        "comm_check_backends": backends,
        "comm_check_container": node.container.module_spec(),
        "comm_check_link_gbit": rate * BYTES,
        "comm_check_rdma_gbit": rdma.gbit(host.network, node.network.hca),
    }


def check(options: RunOptions, reporter: Reporter) -> RunResult:
    """Run the check stage alone. Raises NotReadyError for findings or an owner that stop a deployment."""
    prepared = prepare(options.inventories, options.extra_vars, probe=True, limit=options.limit)
    variables = check_vars(prepared.cluster, prepared.plan)
    with recorded(prepared.cluster, options, "check", reporter) as shown:
        result = run_stages("check.yml", options, prepared.cluster, variables, shown)
    peek(prepared.cluster)
    return result
