"""The replicas that result where a spare has the place of a host that stays away (spare_takeover)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headfirst.common.errors import InputError
from headfirst.decide.cluster.types import Cluster, Host, Place, Replica, Service
from headfirst.decide.hardware.gpus import Gpu
from headfirst.decide.plan.host import hardware
from headfirst.decide.plan.launching import Launching
from headfirst.decide.plan.sizing.fit import memory_text
from headfirst.decide.plan.types import Standby

# An engine that lost a rank has ended, or was found hanging, before a spare takes over.
_BEYOND_HANG_S = 60


def standbys(cluster: Cluster, gpu: Gpu | None, launching: Launching) -> list[Standby]:
    """One for each host of a replica of several hosts and each of its spares; [] where none may take over.

    `gpu` is what the plan counts with. Raises InputError for a spare that has other GPUs, or another number
    of them, than the ranks: it would fail when it takes over.
    """
    if not cluster.settings.spare_takeover:
        return []
    standbys, service = [], launching.service
    for replica in service.replicas:
        if len(replica.places) == 1:
            continue
        for spare in _spares(cluster, replica):
            for rank, place in enumerate(replica.places):
                places = (*replica.places[:rank], Place(spare, place.devices), *replica.places[rank + 1 :])
                changed = replace(replica, places=places)
                with_spare = replace(service, replicas=(changed,))
                _refuse_other_gpus(with_spare, spare, gpu)
                planned = replace(launching, service=with_spare).replica(changed)
                standbys.append(
                    Standby(
                        spare=spare.name,
                        address=spare.address,
                        replaces=rank,
                        after_seconds=service.settings.hang_timeout + _BEYOND_HANG_S,
                        replica=planned,
                    )
                )
    return standbys


def _spares(cluster: Cluster, replica: Replica) -> Sequence[Host]:
    """The spares of a replica: one where it has two hosts, since two could each join another one of them.

    So any two of its generations share a host, and never run both where the network is cut.
    """
    if len(replica.places) > 2:
        return cluster.spares
    first = replica.index % max(1, len(cluster.spares))
    return cluster.spares[first : first + 1]


def _refuse_other_gpus(service: Service, spare: Host, gpu: Gpu | None) -> None:
    """`service` has the spare among its hosts."""
    hardware.machines(service, spare.name)
    smallest = hardware.gpu(service, spare.name)
    if smallest and gpu and smallest.memory_bytes < gpu.memory_bytes:
        raise InputError(
            f"its GPUs have {memory_text(smallest.memory_bytes)}, "
            f"but the plan needs {memory_text(gpu.memory_bytes)}",
            where=spare.name,
            hint="List a spare with the GPUs of the ranks, or leave spare_takeover out.",
        )
