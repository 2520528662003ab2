"""`deploy release`: hosts lose their owner record, for another cluster to have them. Nothing is stopped."""

from __future__ import annotations

from dataclasses import dataclass

from headfirst.common.errors import InputError
from headfirst.control.deployment.hosts.access import host_access
from headfirst.control.deployment.running.claim import is_ours
from headfirst.control.deployment.running.options import RunOptions
from headfirst.control.inventory.inventory import load
from headfirst.control.ownership import requests
from headfirst.control.ownership.lease import locked, look
from headfirst.control.ownership.records import Owner


@dataclass(frozen=True)
class Released:
    """Hosts that were released, and hosts whose owner is another one, with their owners."""

    hosts: dict[str, Owner]
    foreign: dict[str, Owner]


def release(options: RunOptions, owner_name: str | None) -> Released:
    """Release the hosts of this cluster, or with `owner_name` those of the other cluster of that name."""
    cluster = load(options.inventories, options.extra_vars, options.limit)
    access = host_access(cluster)
    states = look([access[host.name] for host in cluster.limited_hosts])
    owners = {host: state.owner for host, state in states.items() if state.owner}
    ours = {host for host, owner in owners.items() if is_ours(cluster, owner)}
    released = (
        ours
        if owner_name is None
        else {host for host, owner in owners.items() if owner.cluster == owner_name and host not in ours}
    )
    if owner_name is not None and not released:
        names = sorted({owner.cluster for host, owner in owners.items() if host not in ours})
        raise InputError(
            f"no host of the inventory belongs to another cluster named {owner_name}",
            hint=f"Owners of its hosts: {', '.join(names)}." if names else "No other cluster has its hosts.",
        )
    if released:
        hosts = [access[host] for host in states if host in released]
        with locked(hosts, "release", cluster.name, judge=lambda states: None, wait_s=options.wait_s) as lock:
            requests.ask_all(hosts, "disown", token=lock.token)
    return Released(
        {host: owner for host, owner in owners.items() if host in released},
        {host: owner for host, owner in owners.items() if host not in released},
    )
