"""Which cores of a host each of its ranks computes on, where the engine runs on CPUs."""

from __future__ import annotations

from headfirst.common.errors import InputError
from headfirst.decide.cluster.types import Host


def share(host: Host, ranks: int) -> tuple[str, ...]:
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
    found = {core for first, _, last in parts for core in range(int(first), int(last or first) + 1)}
    if not found:
        raise InputError(
            f"cpu_cores={host.cpu_cores} of {host.name} has no core", hint="Write 0-15, for example."
        )
    return sorted(found)


def _text(cores: list[int]) -> str:
    whole = cores == list(range(cores[0], cores[-1] + 1))
    return f"{cores[0]}-{cores[-1]}" if whole and len(cores) > 1 else ",".join(map(str, cores))
