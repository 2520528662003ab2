"""The GPU, the hosts and the cores that the ranks of a service have. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from headfirst.common.errors import InputError
from headfirst.decide.cluster.types import Host, Service
from headfirst.decide.engines.layout import Machines
from headfirst.decide.hardware import gpus
from headfirst.decide.hardware.gpus import Gpu


def gpu(service: Service, where: str) -> Gpu | None:
    """The GPU of all ranks; in a mix the larger ones would wait for the smaller."""
    named = [host for host in service.hosts if host.gpu or host.gpu_memory_bytes]
    if service.settings.engine_device == "cpu" or not named:
        return None
    reported = [
        gpus.reported(host.gpu or "GPU", host.gpu_memory_bytes, host.gpu_capability, where=host.name)
        for host in named
    ]
    require_nvidia(reported, where)
    listed = sorted({gpu.name for gpu in reported})
    if len(listed) > 1:
        raise InputError(
            f"the ranks have different GPUs: {', '.join(listed)}",
            where=where,
            hint="Ranks run at the pace and with the memory of the smallest. List hosts of one type, or give "
            "each type a service: a group of its own that sets model=.",
        )
    return min(reported, key=lambda gpu: gpu.memory_bytes)


def require_nvidia(reported: Iterable[Gpu], where: str) -> None:
    """InputError for GPUs that the roles cannot set up."""
    if other := next((gpu for gpu in reported if gpu.vendor != "nvidia"), None):
        raise InputError(
            f"{other.name} is not an NVIDIA GPU: its driver, devices and images are not set up yet",
            where=where,
            hint="Start the engine's own image for such GPUs by hand.",
        )


def machines(service: Service, where: str) -> Machines:
    """The hosts of a replica; all replicas are alike."""
    places = [place for replica in service.replicas for place in replica.places]
    nodes = len(service.replicas[0].places)
    if service.settings.engine_device == "cpu":
        return Machines(nodes, None)
    missing = [place.host.name for place in places if not place.gpus]
    if missing:
        raise InputError(
            f"the GPUs of {', '.join(dict.fromkeys(missing))} are not known",
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


def core_lists(host: Host, ranks: int) -> tuple[str, ...]:
    """One list of cores (`0-3`) for each rank on the host; no core is in two while there are enough."""
    cores = _cores(host)
    each = max(1, len(cores) // ranks)
    starts = (rank * each % len(cores) for rank in range(ranks))
    return tuple(_text(cores[start : start + each]) for start in starts)


def _cores(host: Host) -> list[int]:
    if host.cpu_cores is None:
        if host.cores is None:
            raise InputError(
                f"the number of cores of {host.name} is not known",
                hint="Write cpu_cores=0-15 in the inventory, or probe the hosts: deploy plan --probe.",
            )
        return list(range(host.cores))
    parts = [part.partition("-") for part in host.cpu_cores.split(",")]
    cores = {core for first, _, last in parts for core in range(int(first), int(last or first) + 1)}
    if not cores:
        raise InputError(
            f"cpu_cores={host.cpu_cores} of {host.name} has no core", hint="Write 0-15, for example."
        )
    return sorted(cores)


def _text(cores: list[int]) -> str:
    whole = cores == list(range(cores[0], cores[-1] + 1))
    return f"{cores[0]}-{cores[-1]}" if whole and len(cores) > 1 else ",".join(map(str, cores))
