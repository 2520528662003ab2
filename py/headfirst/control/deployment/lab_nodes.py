"""From a cluster's lab hosts to the lab that makes them."""

from __future__ import annotations

import ipaddress
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from headfirst.common.errors import InputError, NotReadyError
from headfirst.control import demo
from headfirst.control.deployment.running.local_work import JobAdvance
from headfirst.control.lab import keys
from headfirst.control.lab.types import Lab, LabNode
from headfirst.control.paths import cache_dir, state_dir
from headfirst.decide.cluster.login import Become, HostAccess
from headfirst.decide.cluster.types import Cluster, Host, Service

# Where nodes see `share_dir()`, read-only: it stands for the NFS share of a real site.
NODE_SHARE = Path("/srv/headfirst")
_DEMO = "demo"


def share_dir() -> Path:
    """Folder of this machine that every lab node sees at NODE_SHARE."""
    return cache_dir("share")


def lab_of(cluster: Cluster) -> Lab | None:
    """The lab of a cluster, or None when it has no lab hosts."""
    if not cluster.lab_hosts:
        return None
    subnet = cluster.settings.lab_subnet or ipaddress.IPv4Network(f"{cluster.head.address}/24", strict=False)
    nodes = tuple(
        LabNode(host.name, host.address, host.lab_memory, host.lab_cpus) for host in cluster.lab_hosts
    )
    return Lab(cluster.name, str(subnet), nodes, state_dir("lab", cluster.name), share_dir())


def with_lab_facts(cluster: Cluster) -> Cluster:
    """The cluster with what is known of lab hosts before they exist: containers on this machine's cores."""

    def known(host: Host) -> Host:
        return replace(host, cores=os.cpu_count(), cgroup_obstacle="nested") if host.lab else host

    return cluster.replaced(known)


def started(cluster: Cluster, services: Sequence[Service], advance: JobAdvance) -> None:
    """Start the nodes of a cluster's lab, with the demo models of these services on their share."""
    from headfirst.control.lab import lifecycle

    for service in services:
        if service.settings.model_source == "demo":
            share_demo_checkpoint(service.model_id)
    lifecycle.up(required_lab(cluster), advance, advance.warn)


def share_demo_checkpoint(model: str) -> None:
    """Put a demo checkpoint on the share, where its files differ: nodes see it at `shared_demo(model)`."""
    with demo.checkpoint(model) as source:
        for file in sorted(path for path in source.rglob("*") if path.is_file()):
            copy = share_dir() / _DEMO / model / file.relative_to(source)
            if not copy.exists() or copy.read_bytes() != file.read_bytes():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, copy)


def shared_demo(model: str) -> Path:
    """Where nodes see a demo checkpoint."""
    return NODE_SHARE / _DEMO / model


def lab_logins(cluster: Cluster) -> dict[str, HostAccess]:
    """How the nodes of a cluster's lab are reached, by name. NotReadyError where they are not up."""
    if (lab := lab_of(cluster)) is None:
        return {}
    access = keys.access(lab)
    if not access.private_key.exists() or not access.known_hosts.exists():
        raise NotReadyError(
            f"the nodes of lab {lab.name} are not up", hint="Start them: deploy lab up INVENTORY"
        )
    files = (access.private_key, access.known_hosts)
    return {
        host.name: HostAccess(
            host.name, host.login.address, access.user, host.login.port, *files, become=Become()
        )
        for host in cluster.lab_hosts
    }


def required_lab(cluster: Cluster) -> Lab:
    """The lab of a cluster that must have one."""
    lab = lab_of(cluster)
    if lab is None:
        raise InputError(
            "the inventory has no lab nodes",
            where=str(cluster.inventories[0]),
            hint="Lab nodes are hosts with lab=true. An example: deploy init lab.ini --example lab",
        )
    return lab
