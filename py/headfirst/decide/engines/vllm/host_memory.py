"""Host memory of vLLM 0.33: KV caches that connectors keep there, and offloaded weights.

Sources: vllm/config/vllm.py (_post_init_kv_transfer_config), config/cache.py, v1/kv_offload/cpu/spec.py and
shared_offload_region.py, distributed/kv_transfer/kv_connector/v1/simple_cpu_offload_connector.py,
v1/kv_offload/tiering/fs/manager.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headfirst.decide.engines.arguments import whole
from headfirst.decide.engines.host_memory import (
    GIB,
    LMCACHE_SERVER,
    HostRequest,
    KeptFolder,
    KeptMemory,
    Lever,
    connectors,
    lmcache,
    with_weights,
)

_SIZE = "--kv-offloading-size"
_BYTES = "cpu_bytes_to_use"
_CACHE = "KV cache (offloaded)"
_SIMPLE_BYTES = 8 * GIB  # DEFAULT_CPU_CAPACITY_BYTES
_SIMPLE_DISK_BYTES = 100 * GIB  # of each rank


def host_memory(request: HostRequest) -> KeptMemory:
    """What all ranks of a host keep there."""
    return with_weights(request, _cache(request))


def _cache(request: HostRequest) -> KeptMemory:
    values, size = request.values, request.values.get("kv_offloading_size")
    if size is None:
        for name, extra in connectors(values.get("kv_transfer_config")):
            memory = _of_connector(request, name, extra)
            if memory is not None:
                return memory
        return KeptMemory()
    if request.role:
        return KeptMemory(
            problems=(f"{_SIZE} takes the place of the connector between prefill and decode replicas",)
        )
    if values.get("kv_offloading_backend") == "lmcache":
        return KeptMemory(notes=(LMCACHE_SERVER,))
    if request.environment.get("VLLM_USE_SIMPLE_KV_OFFLOAD", "0") not in ("", "0"):
        return _private(request, int(size * GIB) // _group(request), Lever(_SIZE, _CACHE, 0))
    return _region(request, int(size * GIB), Lever(_SIZE, _CACHE, GIB))


def _of_connector(request: HostRequest, name: str, extra: Mapping[str, Any]) -> KeptMemory | None:
    """None: a connector that keeps nothing on the host."""
    if name == "LMCacheConnectorV1":
        return lmcache(request)
    if name == "LMCacheMPConnector":
        return KeptMemory(notes=(LMCACHE_SERVER,))
    if name == "SimpleCPUOffloadConnector":
        size = whole(extra, _BYTES, _SIMPLE_BYTES) // _group(request)
        memory = _private(request, whole(extra, f"{_BYTES}_per_rank", size), Lever(_BYTES, _CACHE, 0))
        if extra.get("kv_offload_backend") != "disk" or not extra.get("disk_path"):
            return memory
        most = whole(extra, "disk_capacity_bytes", _SIMPLE_DISK_BYTES) * request.ranks
        return KeptMemory(folders=(KeptFolder(str(extra["disk_path"]), "disk_path", f"{most / GIB:g} GiB"),))
    if name != "OffloadingConnector":
        return None
    used = whole(extra, _BYTES, 0)
    tiers = extra.get("secondary_tiers")
    folders = tuple(
        KeptFolder(str(tier["root_dir"]), "root_dir")
        for tier in (tiers if isinstance(tiers, list) else [])
        if isinstance(tier, Mapping) and tier.get("type") == "fs" and tier.get("root_dir")
    )
    return replace(_region(request, used, Lever(_BYTES, _CACHE, 1)), folders=folders)


def _group(request: HostRequest) -> int:
    """Ranks that share one cache: those of a data-parallel group."""
    return request.layout.tensor * request.layout.pipeline


def _region(request: HostRequest, size: int, lever: Lever) -> KeptMemory:
    """A file in /dev/shm for each data-parallel group, of `size` bytes on each host that it is on.

    A rank fills its own part, and all of it where the ranks have one latent cache.
    """
    groups = max(1, request.ranks // _group(request))
    share = 1.0 if request.checkpoint.mla else min(1.0, request.ranks / _group(request))
    filled = int(size * groups * share)
    return KeptMemory(
        {_CACHE: filled},
        shared=size * groups,
        lever=replace(lever, unit_bytes=lever.unit_bytes * groups * share),
    )


def _private(request: HostRequest, each: int, lever: Lever) -> KeptMemory:
    """Pinned memory of each rank."""
    unit = (GIB if lever.name == _SIZE else 1) * request.ranks / _group(request)
    return KeptMemory({_CACHE: each * request.ranks}, lever=replace(lever, unit_bytes=unit))
