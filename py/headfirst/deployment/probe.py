"""Asks the hosts over SSH for what an inventory may leave out: GPUs, network, cores, memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from headfirst.cluster.facts import HostFacts, NetworkFacts, read
from headfirst.cluster.types import Cluster, Host
from headfirst.deployment.options import RunOptions
from headfirst.deployment.stages import run_stages
from headfirst.plan import gpus
from headfirst.run.quiet import QuietReporter

MBIT = 10**6 // 8  # bytes


def lacks_facts(cluster: Cluster) -> bool:
    """Whether a plan needs what the inventory does not say."""
    gpus_unknown = cluster.settings.engine_device == "cuda" and not all(
        host.gpus and host.gpu and gpus.known(host.gpu) for host in cluster.ranks
    )
    cores_unknown = cluster.settings.engine_device == "cpu" and not all(
        host.cpu_cores or host.cores for host in cluster.ranks
    )
    network_unknown = len(cluster.ranks) > 1 and not all(
        _knows_network(cluster, host) for host in cluster.ranks
    )
    return gpus_unknown or cores_unknown or network_unknown


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
    """The host with what module host_facts reports of it, where the inventory is silent.

    Raises UntrustedError for facts that no host can have.
    """
    if not facts:  # left out with --limit
        return host
    found = read(facts, host=host.name)
    holder = next((nic for nic in found.nics if host.address in nic.addresses), None)
    return replace(
        host,
        gpus=len(found.gpus or found.gpus_on_pci) if host.gpus is None else host.gpus,
        gpu=host.gpu or (found.gpus[0].name if found.gpus else None),
        gpu_memory_bytes=min((gpu.memory_bytes for gpu in found.gpus), default=0) or None,
        gpu_capability=min((gpu.capability for gpu in found.gpus if gpu.capability), default=None),
        link_rate=holder.mbit * MBIT or None if holder else None,
        cores=found.cores,
        memory_bytes=found.memory_bytes,
        network=NetworkFacts(nics=found.nics, routes=found.routes, hcas=found.hcas),
        lacks=_lacks(found),
    )


def _lacks(found: HostFacts) -> frozenset[str]:
    """What is on PCI and known to no driver."""
    driver = {"nvidia_driver"} if found.gpus_on_pci and not found.gpus else set()
    return frozenset(driver | ({"rdma"} if found.hcas_on_pci and not found.hcas else set()))
