"""Asks the hosts over SSH for what an inventory may leave out: GPUs, network, cores, memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from headfirst.cluster.facts import NetworkFacts
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
    return gpus or (
        len(cluster.ranks) > 1 and not all(_knows_network(cluster, host) for host in cluster.ranks)
    )


def _knows_network(cluster: Cluster, host: Host) -> bool:
    if cluster.settings.engine_device == "cpu" or host.hca == "none":
        return host.nic is not None
    return host.nic is not None and host.hca is not None and host.ib_gid_index is not None


def probe_hosts(cluster: Cluster, extra_vars: Sequence[str]) -> Cluster:
    """The cluster with facts of its hosts where the inventory is silent; what it says stays."""
    variables: dict[str, dict[str, Any]] = {
        host.name: {"probe_peers": [peer.address for peer in cluster.ranks if peer is not host]}
        for host in cluster.hosts
    }
    result = run_stages(
        "probe.yml", RunOptions(cluster.inventories, extra_vars), cluster, variables, QuietReporter()
    )
    probed = {host.name: with_facts(host, result.stats.get(host.name, {})) for host in cluster.hosts}
    return replace(
        cluster,
        head=probed[cluster.head.name],
        webui=probed[cluster.webui.name],
        workers=tuple(probed[host.name] for host in cluster.workers),
    )


def with_facts(host: Host, facts: dict[str, Any]) -> Host:
    """The host with what module host_facts says of it, where the inventory is silent."""
    if not facts:  # left out with --limit
        return host
    gpus = facts["gpus"]
    network = NetworkFacts.model_validate(facts)
    holder = next((nic for nic in network.nics if host.address in nic.addresses), None)
    return replace(
        host,
        gpus=len(gpus or facts["gpus_on_pci"]) if host.gpus is None else host.gpus,
        gpu=host.gpu or (gpus[0]["name"] if gpus else None),
        link_rate=holder.mbit * MBIT or None if holder else None,
        cores=facts["cores"],
        memory_bytes=facts["memory_bytes"],
        network=network,
        lacks=_lacks(facts),
    )


def _lacks(facts: dict[str, Any]) -> frozenset[str]:
    """What is on PCI and known to no driver."""
    driver = {"nvidia_driver"} if facts["gpus_on_pci"] and not facts["gpus"] else set()
    return frozenset(driver | ({"rdma"} if facts["hcas_on_pci"] and not facts["hcas"] else set()))
