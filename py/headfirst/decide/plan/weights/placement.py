"""Whether a model folder is served where it is, and whether the weights are read into the page cache. Pure.

An engine reads shard after shard with one stream, or faults pages in; several streams are faster. What is
read must stay in memory until the engine has it, beside what the engine itself takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ansible_collections.headfirst.serving.plugins.module_utils.weight_sources import FOLDER

from headfirst.common.errors import InputError
from headfirst.decide.cluster.settings import FetchMode, ServiceSettings
from headfirst.decide.cluster.types import Host, Service
from headfirst.decide.cluster.values import memory_bytes

How = Literal["brought", "staged", "in_place"]


@dataclass(frozen=True)
class Placement:
    """`brought` comes from a hub, `staged` from a folder that one node reads, `in_place` is not copied."""

    how: How
    reason: str
    on_share: bool = False


def may_be_in_place(settings: ServiceSettings) -> bool:
    """Whether it depends on the hosts where the model is served from."""
    return settings.source is FOLDER and settings.weights_shared != "stage"


def choose(service: Service, *, convert: bool, where: str | None) -> Placement:
    """Decide by the settings and by what the hosts were asked. InputError for `in_place` that cannot be."""
    settings, hosts = service.settings, service.hosts
    head = hosts[0].name
    if settings.weights_shared == "in_place" and (convert or not may_be_in_place(settings)):
        why = "the model is converted to BF16" if convert else "the model is not a folder of the nodes"
        raise InputError(
            f"weights_shared=in_place: {why}, so it cannot be served where it is",
            where=where,
            hint="Set weights_shared=auto.",
        )
    if settings.source is not FOLDER:
        return Placement("brought", _brought(head, settings.weights_fetch if len(hosts) > 1 else None))
    staged = f"{head} reads the folder once, each node receives from the one before it"
    if convert or settings.weights_shared == "stage":
        return Placement("staged", staged + (" and converts its copy" if convert else ""))
    if not any(host.model_folder for host in hosts):  # nobody was asked
        if settings.weights_shared == "in_place":
            return Placement("in_place", "on every node, as weights_shared=in_place requires")
        return Placement("staged", f"{staged}; in place where all nodes see the folder (--probe checks them)")
    if missing := _without(hosts):
        listed = ", ".join(missing)
        if settings.weights_shared == "in_place":
            return Placement("in_place", f"refused as long as {listed} cannot serve the folder")
        return Placement("staged", f"{staged}: {listed} cannot serve the folder where it is")
    return _in_place(hosts)


def _brought(head: str, fetch: FetchMode | None) -> str:
    who = {
        None: f"{head} fetches",
        "head": f"{head} fetches, each node receives from the one before it",
        "all": "each node fetches its share of the shards, and receives the others from the node before it",
        "auto": f"{head} fetches, and all nodes where that is faster; each receives from the node before it",
    }
    return who[fetch]


def _without(hosts: tuple[Host, ...]) -> list[str]:
    """Hosts that do not have the folder, or one with links that lead out of it."""
    return [
        host.name
        for host in hosts
        if not (host.model_folder and host.model_folder.exists and not host.model_folder.leads_out)
    ]


def _in_place(hosts: tuple[Host, ...]) -> Placement:
    seen = {host.name: host.model_folder for host in hosts if host.model_folder}
    readers: dict[str, str] = {}
    for name, folder in seen.items():
        readers.setdefault(folder.sight, name)
    first = seen[hosts[0].name]
    if len(readers) > 1:
        what = "a copy on each node"
    else:
        what = f"the same files on all nodes, on {first.type}" if len(hosts) > 1 else f"on {first.type}"
    other = [name for name, folder in seen.items() if folder.shape != first.shape]
    differ = f"; {', '.join(other)} has other files and gets its own copy" if other else ""
    return Placement("in_place", f"{what}; verified by {', '.join(readers.values())}{differ}", first.shared)


# Host memory of a rank on a GPU: Python, CUDA's context, NCCL's and pinned buffers.
RANK_BYTES = 8 << 30
# Less is loaded in seconds anyway.
LEAST_BYTES = 8 * 10**9


@dataclass(frozen=True)
class WarmingChoice:
    """How much is read, and the bytes of each node's memory that are left to its ranks."""

    how: Literal["whole", "part", "none"]
    reserve_bytes: int
    reason: str


def warming(
    settings: ServiceSettings,
    hosts: Sequence[Host],
    served_bytes: int,
    *,
    rank_bytes: int,
    host_bytes: int,
    ranks_on_node: int,
) -> WarmingChoice:
    """Decide by settings and facts; `rank_bytes` are the weights of a rank, which a CPU engine keeps, and
    `host_bytes` what ranks on GPUs keep in the memory of a node."""
    cpu_bytes = 2 * rank_bytes if settings.engine_device == "cpu" else 0
    reserve = ranks_on_node * (RANK_BYTES + cpu_bytes) + memory_bytes(settings.shm_size)
    reserve += host_bytes
    if settings.weights_warm_cache is False:
        return WarmingChoice("none", reserve, "weights_warm_cache=false")
    if any(host.model_folder and host.model_folder.exists and not host.model_folder.cached for host in hosts):
        return WarmingChoice("none", reserve, "the file system of the model folder does not use it")
    if settings.weights_warm_cache is True:
        return WarmingChoice("part", reserve, "as much as fits beside the ranks")
    if served_bytes < LEAST_BYTES:
        return WarmingChoice("none", reserve, "the model is small")
    memories = [host.memory_bytes for host in hosts if host.memory_bytes]
    if memories and served_bytes + reserve > min(memories):
        return WarmingChoice("none", reserve, "the weights do not fit into memory beside the ranks")
    return WarmingChoice("whole", reserve, "if all of it fits beside the ranks")
