"""Servers as they come: their drivers first, for only with them do they know their GPUs and RDMA devices."""

from __future__ import annotations

from headfirst.cluster.types import Cluster, Host
from headfirst.deployment.options import RunOptions
from headfirst.deployment.role_vars import hardware_vars
from headfirst.deployment.stages import run_stages
from headfirst.plan.types import Plan
from headfirst.run.reporter import Reporter
from headfirst.run.result import RunResult


def comes_first(cluster: Cluster) -> bool:
    """Whether the plan waits for what only a driver will tell."""
    settings = cluster.settings
    if settings.drivers == "keep" or settings.engine_device == "cpu":
        return False
    return any(_unknown(host, alone=len(cluster.ranks) == 1) for host in cluster.ranks)


def _unknown(host: Host, *, alone: bool) -> bool:
    return ("nvidia_driver" in host.lacks and host.gpu is None) or (
        "rdma" in host.lacks and host.hca is None and not alone
    )


def make_ready(options: RunOptions, cluster: Cluster, plan: Plan, reporter: Reporter) -> RunResult:
    """Check the hosts and install drivers. `plan` is what is known so far."""
    return run_stages("hardware.yml", options, cluster, hardware_vars(cluster, plan), reporter)
