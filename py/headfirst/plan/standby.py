"""The replicas that result where a spare has the place of a host that stays away (spare_takeover)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from headfirst.cluster.types import Cluster, Place, Service
from headfirst.plan.launching import Launching
from headfirst.plan.types import Standby


def standbys(cluster: Cluster, service: Service, launching: Callable[[Service], Launching]) -> list[Standby]:
    """One for each spare and each host of a replica of several hosts; [] where no spare may take over."""
    if not cluster.settings.spare_takeover:
        return []
    found = []
    for replica in service.replicas:
        if len(replica.places) == 1:
            continue
        for spare in cluster.spares:
            for rank, place in enumerate(replica.places):
                places = (*replica.places[:rank], Place(spare, place.devices), *replica.places[rank + 1 :])
                changed = replace(replica, places=places)
                own = replace(service, replicas=(changed,))
                planned = launching(own).replica(changed)
                found.append(Standby(spare=spare.name, address=spare.address, replaces=rank, replica=planned))
    return found
