"""Verbs that change the engine or its arguments for the whole cluster."""

from __future__ import annotations

from headfirst.common.errors import InputError
from headfirst.decide.cluster.types import Cluster, Service


def only_service(cluster: Cluster, verb: str) -> Service:
    """The cluster's service. InputError where there are several: an extra variable is set for all of them."""
    if len(cluster.services) > 1:
        listed = ", ".join(map(str, cluster.services))
        raise InputError(
            f"{verb} changes a variable of all services, and the cluster has several: {listed}",
            hint="Use it on an inventory of one service.",
        )
    return cluster.services[0]
