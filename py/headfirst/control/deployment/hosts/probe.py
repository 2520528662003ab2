"""Asks the hosts over SSH for what an inventory may leave out: GPUs, network, cores, memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from headfirst.control.deployment.hosts.access import host_access
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.deployment.running.playbooks import run_stages
from headfirst.control.run.failures import to_error
from headfirst.control.run.reporters.reporter import QuietReporter
from headfirst.decide.cluster.types import Cluster, Host, Service
from headfirst.decide.hardware import gpus
from headfirst.decide.hardware.facts import HostFacts, NetworkFacts, read
from headfirst.decide.plan.weights.placement import may_be_in_place

MBIT = 10**6 // 8  # bytes


def lacks_facts(cluster: Cluster) -> bool:
    """Whether a plan needs what the inventory does not set."""
    # A spare that takes over by itself runs the rank that is planned now.
    spares = cluster.spares if cluster.settings.spare_takeover else ()
    return any(_lacks_facts(service, spares) for service in cluster.services)


def _lacks_facts(service: Service, spares: Sequence[Host]) -> bool:
    cpu = service.settings.engine_device == "cpu"
    hosts = (*service.hosts, *spares)
    if cpu:
        is_described = all(host.cpu_cores or host.cores for host in hosts)
    else:
        is_described = all(host.gpus and _knows_gpu(host) for host in hosts)
    if may_be_in_place(service.settings) and not all(host.model_folder for host in service.hosts):
        return True
    return not is_described or bool(
        service.meeting and not all(_knows_network(host, cpu=cpu) for host in service.hosts)
    )


def _knows_gpu(host: Host) -> bool:
    return bool(host.gpu_memory_bytes or (host.gpu and gpus.known(host.gpu)))


def _knows_network(host: Host, *, cpu: bool) -> bool:
    if cpu or host.hca == "none":
        return host.nic is not None
    return host.nic is not None and host.hca is not None and host.ib_gid_index is not None


def probe_hosts(cluster: Cluster, extra_vars: Sequence[str]) -> Cluster:
    """The cluster with facts of its hosts where the inventory is silent; what it states stays.

    A plan is of the whole cluster, so hosts that its limit leaves out are read, too. Only a host that the
    limit names must answer; a plan that needs the facts of another one that does not is refused.
    """
    variables: dict[str, dict[str, Any]] = {
        host.name: {"probe_peers": [peer.address for peer in cluster.nodes if peer is not host]}
        | _folders(cluster, host)
        for host in cluster.hosts
    }
    options = RunOptions(cluster.inventories, extra_vars)
    everywhere = cluster.limited(None)
    result = run_stages("probe.yml", options, everywhere, variables, QuietReporter(), may_fail=True)
    failed = {failure.host for failure in (*result.failed, *result.unreachable)}
    if not result.ok and (
        result.cancelled or not failed or failed & {host.name for host in cluster.limited_hosts}
    ):
        raise to_error(result, host_access(cluster), cluster.inventories[0])
    return cluster.replaced(lambda host: with_facts(host, result.stats.get(host.name, {})))


def with_facts(host: Host, facts: dict[str, Any]) -> Host:
    """The host with what module host_facts reports of it, where the inventory is silent.

    Raises UntrustedError for facts that no host can have.
    """
    if not facts:  # it did not answer, and the run leaves it out
        return host
    report = read(facts, host=host.name)
    holder = next((nic for nic in report.nics if host.address in nic.addresses), None)
    return replace(
        host,
        gpus=len(report.gpus or report.gpus_on_pci) if host.gpus is None else host.gpus,
        gpu=host.gpu or (report.gpus[0].name if report.gpus else None),
        gpu_memory_bytes=host.gpu_memory_bytes
        or min((gpu.memory_bytes for gpu in report.gpus), default=None),
        gpu_capability=host.gpu_capability
        or min((gpu.capability for gpu in report.gpus if gpu.capability), default=None),
        link_rate=holder.mbit * MBIT or None if holder else None,
        cores=report.cores,
        memory_bytes=report.memory_bytes,
        network=NetworkFacts(nics=report.nics, routes=report.routes, hcas=report.hcas),
        cgroup_obstacle=report.cgroup_obstacle,
        lacks=_lacks(report),
        weights_dir_shared=report.disk_shared,
        model_folder=report.model_folder,
    )


def _folders(cluster: Cluster, host: Host) -> dict[str, Any]:
    """Where the weights of the first service on a host are, and the folder that it may serve where it is."""
    here = [service.settings for service in cluster.services if host in service.hosts]
    models = [settings.model for settings in here if may_be_in_place(settings)]
    return {
        "probe_weights_dir": here[0].weights_dir if here else "/var/lib/headfirst",
        "probe_model_folder": models[0] if models else "",
    }


def _lacks(facts: HostFacts) -> frozenset[str]:
    """What is on PCI and known to no driver."""
    driver = {"nvidia_driver"} if facts.gpus_on_pci and not facts.gpus else set()
    cards = {"rdma": facts.hcas_on_pci, "roce": facts.roce_on_pci}
    return frozenset(driver | {name for name, has_cards in cards.items() if has_cards and not facts.hcas})
