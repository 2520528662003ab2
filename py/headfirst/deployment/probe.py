"""Asks the hosts over SSH for what an inventory may leave out: GPUs, interfaces, cores, memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from headfirst.cluster.types import Cluster, Host
from headfirst.deployment.options import RunOptions
from headfirst.deployment.stages import run_stages
from headfirst.run.quiet import QuietReporter

MBIT = 10**6 // 8  # bytes


def lacks_facts(cluster: Cluster) -> bool:
    """Whether a plan needs what the inventory does not say."""
    gpus = cluster.settings.engine_device == "cuda" and not all(
        host.gpus and host.gpu for host in cluster.ranks
    )
    return gpus or (len(cluster.ranks) > 1 and not all(host.nic for host in cluster.ranks))


def probe_hosts(cluster: Cluster, extra_vars: Sequence[str]) -> Cluster:
    """The cluster with facts of its hosts where the inventory is silent; what it says stays."""
    variables: dict[str, dict[str, Any]] = {
        host.name: {"host_probe_address": host.address} for host in cluster.hosts
    }
    result = run_stages(
        "probe.yml", RunOptions(cluster.inventories, extra_vars), cluster, variables, QuietReporter()
    )
    probed = {host.name: _with_facts(host, result.stats.get(host.name, {})) for host in cluster.hosts}
    return replace(
        cluster,
        head=probed[cluster.head.name],
        webui=probed[cluster.webui.name],
        workers=tuple(probed[host.name] for host in cluster.workers),
    )


def _with_facts(host: Host, facts: dict[str, Any]) -> Host:
    gpus: list[str] = facts.get("gpus", [])
    return replace(
        host,
        gpus=len(gpus) if host.gpus is None else host.gpus,
        gpu=host.gpu or (gpus[0] if gpus else None),
        nic=host.nic or facts.get("nic"),
        link_rate=facts.get("link_mbit", 0) * MBIT or None,
        cores=facts.get("cores"),
        memory_bytes=facts.get("memory_bytes"),
    )
