"""Servers as they come: their drivers first, for only drivers report their GPUs and RDMA devices."""

from __future__ import annotations

from headfirst.control.deployment.running.inventory import meets, on_gpus
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.running.role_vars.host_vars import HostVars, with_sources
from headfirst.control.deployment.running.role_vars.hosts import hardware_vars
from headfirst.control.deployment.running.stages import run_stages
from headfirst.control.run.reporters.reporter import Reporter
from headfirst.control.run.result import RunResult
from headfirst.decide.cluster.types import Cluster, Host
from headfirst.decide.plan.types import Plan


def comes_first(cluster: Cluster) -> bool:
    """Whether the plan waits for what only a driver will report."""
    if cluster.settings.drivers == "keep":
        return False
    return any(_unknown(host, alone=not meets(cluster, host)) for host in on_gpus(cluster))


def _unknown(host: Host, *, alone: bool) -> bool:
    return ("nvidia_driver" in host.lacks and host.gpu is None) or (
        "rdma" in host.lacks and host.hca is None and not alone
    )


def make_ready(
    options: RunOptions, cluster: Cluster, plan: Plan, reporter: Reporter, sources: HostVars
) -> RunResult:
    """Check the hosts and install drivers. `plan` is what is known so far; `sources` is as in run_phases."""
    variables = with_sources(hardware_vars(cluster, plan), sources)
    return run_stages("hardware.yml", options, cluster, variables, reporter)
