"""Which hosts of a cluster a run acts on."""

from __future__ import annotations

from headfirst.cluster.reading import read
from headfirst.cluster.types import Cluster, Host
from headfirst.deployment.options import RunOptions


def limited_hosts(cluster: Cluster, options: RunOptions) -> tuple[Host, ...]:
    """The hosts that --limit leaves, the head first where it is one of them."""
    if options.limit is None:
        return cluster.hosts
    named = read(cluster.inventories, options.extra_vars, options.limit).limited or []
    return tuple(host for host in cluster.hosts if host.name in named)
