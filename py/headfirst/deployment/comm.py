"""`deploy check --comm`: the ranks talk to each other, in the engine's image. Nothing stays on the hosts."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pydantic import ValidationError

from headfirst.cluster.facts import NetworkFacts
from headfirst.cluster.types import Cluster, Host
from headfirst.deployment.access import host_access
from headfirst.deployment.claim import run_lock
from headfirst.deployment.comm_types import Comm
from headfirst.deployment.options import Backend, RunOptions
from headfirst.deployment.prepare import prepare
from headfirst.deployment.role_vars import HostVars
from headfirst.deployment.stages import try_stages
from headfirst.errors import InputError, NotReadyError
from headfirst.plan import rdma
from headfirst.plan.types import Node, Plan
from headfirst.run.failures import to_error
from headfirst.run.forks import require_all
from headfirst.run.quiet import QuietReporter
from headfirst.run.reporter import Reporter
from headfirst.untrusted import UntrustedError

BYTES = 8 / 1e9  # a second, in Gbit/s


def comm(options: RunOptions, reporter: Reporter, backend: Backend | None) -> Comm:
    """What the ranks found; `errors` in it stand against serving. `backend`: gloo, and nccl where GPUs serve.

    Raises NotReadyError where the test could not be made at all.
    """
    if options.limit:
        raise InputError("the test needs all ranks", hint="Leave out --limit.")
    prepared = prepare(options.inventories, options.extra_vars, probe=True, limit=options.limit)
    cluster, plan = prepared.cluster, prepared.plan
    if plan.world_size == 1:
        raise InputError(
            "the cluster has one rank, which has nobody to talk to", where=str(options.inventories[0])
        )
    require_all(len(cluster.ranks))
    if backend == "nccl" and plan.device == "cpu":
        raise InputError("NCCL needs GPUs, and engine_device is cpu", hint="Use --backend gloo.")
    by_device: list[Backend] = ["gloo", "nccl"] if plan.device == "cuda" else ["gloo"]
    backends = [backend] if backend else by_device
    with run_lock(cluster, options, "check --comm", reporter):
        result = try_stages("comm.yml", options, cluster, _variables(cluster, plan, backends), reporter)
        if result.cancelled:
            # Ansible was interrupted before it could tidy up; the test would end by itself, but later.
            nothing: HostVars = {host.name: {} for host in cluster.hosts}
            try_stages("comm_stop.yml", RunOptions(options.inventories), cluster, nothing, QuietReporter())
    if "comm" not in result.stats or result.cancelled or result.unreachable:
        error = to_error(result, host_access(cluster), cluster.inventories[0])
        raise error if result.cancelled else NotReadyError(error.what, where=error.where, hint=error.hint)
    return _report(result.stats["comm"], [asdict(one) for one in result.findings])


def _report(told: Any, findings: list[dict[str, Any]]) -> Comm:
    """The report with its types proven: its texts and figures come from the hosts."""
    try:
        return Comm.model_validate({**told, "findings": findings})
    except (ValidationError, TypeError):
        raise UntrustedError("a host reports what no test of the communication does") from None


def _variables(cluster: Cluster, plan: Plan, backends: list[Backend]) -> HostVars:
    ranks = zip(plan.nodes, cluster.ranks, strict=True)
    return {cluster.webui.name: {}} | {host.name: _node(plan, node, host, backends) for node, host in ranks}


def _node(plan: Plan, node: Node, host: Host, backends: list[Backend]) -> dict[str, Any]:
    rate = host.network_rate or host.link_rate or 0
    return {
        "comm_check_rank": node.rank,
        "comm_check_ranks_per_node": plan.world_size // len(plan.nodes),
        "comm_check_address": node.address,
        "comm_check_rendezvous_port": plan.dist_port,
        "comm_check_backends": backends,
        "comm_check_container": node.container.module_spec(),
        "comm_check_link_gbit": rate * BYTES,
        "comm_check_rdma_gbit": _rdma_gbit(host.network, node.network.hca),
    }


def _rdma_gbit(facts: NetworkFacts | None, hca: str | None) -> float:
    """All ports together that the plan gives to NCCL."""
    return sum(port.gbit for _, port in rdma.named(facts, hca)) if facts and hca else 0.0
