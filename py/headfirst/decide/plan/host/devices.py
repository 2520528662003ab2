"""On which hosts drivers are installed and RDMA is set up, and whether the plan waits for them. Pure."""

from __future__ import annotations

from headfirst.decide.cluster.types import Cluster, Host
from headfirst.decide.plan.types import HostDevices


def plan(cluster: Cluster) -> list[HostDevices]:
    """One for each host of services on GPUs."""
    with_driver, with_rdma = hosts_with_driver(cluster), _hosts_with_rdma(cluster)
    return [
        HostDevices(
            host=host.name,
            driver=host in with_driver,
            rdma=host in with_rdma,
            reason=_reason(cluster, host),
        )
        for host in _on_gpus(cluster)
    ]


def hosts_with_driver(cluster: Cluster) -> tuple[Host, ...]:
    """Hosts whose GPU drivers are ours to install."""
    return _on_gpus(cluster) if cluster.settings.drivers == "install" else ()


def may_have_rdma(cluster: Cluster) -> bool:
    """Whether RDMA may be set up on a host, by the inventory alone."""
    return any(_meets(cluster, host) and host.hca != "none" for host in hosts_with_driver(cluster))


def may_do_rdma(host: Host) -> bool:
    """Whether a probed host has RDMA hardware, with a driver and a link or without."""
    return "roce" in host.lacks or _has_hca(host)


def comes_first(cluster: Cluster) -> bool:
    """Whether the plan waits for what only a driver will report."""
    return any(
        ("nvidia_driver" in host.lacks and host.gpu is None)
        or ("rdma" in host.lacks and host.hca is None and _meets(cluster, host))
        for host in hosts_with_driver(cluster)
    )


def _on_gpus(cluster: Cluster) -> tuple[Host, ...]:
    on_gpus = [service.hosts for service in cluster.services if service.settings.engine_device == "cuda"]
    spares = cluster.spares if on_gpus else ()
    return tuple({host.name: host for hosts in (*on_gpus, spares) for host in hosts}.values())


def _hosts_with_rdma(cluster: Cluster) -> tuple[Host, ...]:
    """Hosts whose RDMA is ours to set up: ranks on GPUs that exchange data over it."""
    return tuple(
        host
        for host in hosts_with_driver(cluster)
        if _meets(cluster, host) and host.hca != "none" and (host.hca or _has_hca(host))
    )


def _meets(cluster: Cluster, host: Host) -> bool:
    """Whether a replica has, or may have, ranks on this host and on others."""
    meeting = [hosts for service in cluster.services for hosts in service.meeting]
    return any(host in (*hosts, *cluster.spares) for hosts in meeting)


def _has_hca(host: Host) -> bool:
    return "rdma" in host.lacks or bool(host.network and host.network.hcas)


def _reason(cluster: Cluster, host: Host) -> str:
    if cluster.settings.drivers == "keep":
        return "drivers=keep: the host's own drivers are used"
    if not _meets(cluster, host):
        rdma = "no RDMA: no rank of another host belongs to a replica here"
    elif host.hca == "none":
        rdma = "no RDMA: hca=none is set in the inventory"
    elif host.hca:
        rdma = f"RDMA: hca={host.hca} is set in the inventory"
    elif host.network is None and "rdma" not in host.lacks:
        rdma = "no RDMA: the host was not probed (--probe)"
    else:
        rdma = "RDMA: the host has RDMA devices" if _has_hca(host) else "no RDMA: the host has no RDMA device"
    return f"NVIDIA's driver and container toolkit are installed; {rdma}"
