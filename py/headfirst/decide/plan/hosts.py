"""The GPU and the hosts that a replica of a service has: all ranks need the same. Pure."""

from __future__ import annotations

from headfirst.common.errors import InputError
from headfirst.decide.cluster.types import Service
from headfirst.decide.engines.layout import Machines
from headfirst.decide.hardware import gpus
from headfirst.decide.hardware.gpus import Gpu


def gpu(service: Service, where: str) -> Gpu | None:
    """The GPU of all ranks; in a mix the larger ones would wait for the smaller."""
    named = [host for host in service.hosts if host.gpu or host.gpu_memory_bytes]
    if service.settings.engine_device == "cpu" or not named:
        return None
    found = [
        gpus.reported(host.gpu or "GPU", host.gpu_memory_bytes, host.gpu_capability, where=host.name)
        for host in named
    ]
    if other := next((gpu for gpu in found if gpu.vendor != "nvidia"), None):
        raise InputError(
            f"{other.name} is not an NVIDIA GPU: its driver, devices and images are not set up yet",
            where=where,
            hint="`deploy models` estimates what such GPUs hold; start the engine's own image by hand.",
        )
    listed = sorted({gpu.name for gpu in found})
    if len(listed) > 1:
        raise InputError(
            f"the ranks have different GPUs: {', '.join(listed)}",
            where=where,
            hint="Ranks run at the pace and with the memory of the smallest: list hosts of one type.",
        )
    return min(found, key=lambda gpu: gpu.memory_bytes)


def machines(service: Service, where: str) -> Machines:
    """The hosts of a replica; all replicas are alike."""
    places = [place for replica in service.replicas for place in replica.places]
    nodes = len(service.replicas[0].places)
    if service.settings.engine_device == "cpu":
        return Machines(nodes, None)
    missing = [place.host.name for place in places if not place.gpus]
    if missing:
        raise InputError(
            f"the number of GPUs of {', '.join(dict.fromkeys(missing))} is not known",
            where=where,
            hint="Write gpus=8 gpu=A100-80G in the inventory, or probe the hosts: deploy plan --probe.",
        )
    counts = {place.gpus for place in places}
    if len(counts) > 1:
        listed = ", ".join(f"{place.host.name} {place.gpus}" for place in places)
        raise InputError(
            f"the ranks have different numbers of GPUs: {listed}",
            where=where,
            hint="Ranks are spread evenly over the nodes: give each the same gpus=.",
        )
    return Machines(nodes, counts.pop())
