"""Whether the weights are read into the page cache before the ranks start. Pure.

An engine reads shard after shard with one stream, or faults pages in; several streams are faster. What is
read must stay in memory until the engine has it, beside what the engine itself takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from headfirst.decide.cluster.settings import ServiceSettings
from headfirst.decide.cluster.types import Host
from headfirst.decide.cluster.values import memory_bytes

# Host memory of a rank on a GPU: Python, CUDA's context, NCCL's and pinned buffers.
RANK_BYTES = 8 << 30
# Less is loaded in seconds anyway.
LEAST_BYTES = 8 * 10**9


@dataclass(frozen=True)
class Warming:
    """How much is read, and the bytes of each node's memory that are left to its ranks."""

    how: Literal["whole", "part", "none"]
    reserve_bytes: int
    reason: str


def choose(
    settings: ServiceSettings,
    hosts: Sequence[Host],
    served_bytes: int,
    *,
    rank_bytes: int,
    ranks_on_node: int,
) -> Warming:
    """Decide by settings and facts; `rank_bytes` are the weights of a rank, which a CPU engine keeps."""
    own = 2 * rank_bytes if settings.engine_device == "cpu" else 0
    reserve = ranks_on_node * (RANK_BYTES + own) + memory_bytes(settings.shm_size)
    if settings.weights_warm_cache is False:
        return Warming("none", reserve, "weights_warm_cache=false")
    if any(host.model_folder and host.model_folder.exists and not host.model_folder.cached for host in hosts):
        return Warming("none", reserve, "the file system of the model folder does not use it")
    if settings.weights_warm_cache is True:
        return Warming("part", reserve, "as much as fits beside the ranks")
    if served_bytes < LEAST_BYTES:
        return Warming("none", reserve, "the model is small")
    memories = [host.memory_bytes for host in hosts if host.memory_bytes]
    if memories and served_bytes + reserve > min(memories):
        return Warming("none", reserve, "the weights do not fit into memory beside the ranks")
    return Warming("whole", reserve, "where all of it fits beside the ranks")
