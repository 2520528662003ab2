"""Host memory of SGLang 0.5.23: HiCache, the copies that decode replicas keep, offloaded weights.

Sources: srt/mem_cache/pool_host/base.py (HostKVCache, host_memory_budget_bytes), hicache_auto_size.py,
kv_cache_builder.py (resolve_decode_retraction_backup), hicache_storage.py (HiCacheFile),
storage/mooncake_store; srt/arg_groups/hicache_hook.py and kv_cache_hook.py.
"""

from __future__ import annotations

from dataclasses import replace

from headfirst.decide.engines.host_memory import (
    GIB,
    LMCACHE_SERVER,
    HostRequest,
    KeptFolder,
    KeptMemory,
    Lever,
    json_object,
    with_weights,
)

_RATIO = 2.0
_BUFFER_RATIO = 1.2
_BACKUP_RATIO = 0.2  # BACKUP_ONLY_HICACHE_RATIO
_KEEPS_FREE = 10 * GIB  # HICACHE_HOST_MEMORY_RESERVE_BYTES
_SHARE = 0.8  # --hicache-host-memory-fraction
_GB = 10**9  # of --hicache-size, for each rank
_SEGMENT_GIB = 4  # of Mooncake's store, for the ranks of a replica together
_CACHE = "KV cache (HiCache)"
_BACKUP = "KV cache of interrupted requests"
_FILES = "/tmp/hicache"  # noqa: S108 - SGLang's own folder in the container


def host_memory(request: HostRequest) -> KeptMemory:
    """What all ranks of a host keep there."""
    return with_weights(request, _cache(request))


def _cache(request: HostRequest) -> KeptMemory:
    """Each rank mirrors its own KV cache, also where those of several are alike (MLA)."""
    values = request.values
    if values.get("enable_lmcache"):
        return KeptMemory(notes=(LMCACHE_SERVER,))
    decode = values.get("disaggregation_mode") == "decode"
    offloads = bool(decode and values.get("disaggregation_decode_enable_offload_kvcache"))
    if not (values.get("enable_hierarchical_cache") or offloads):
        return _without(request, backup=decode)
    memory = replace(_storage(request), keeps_free=_KEEPS_FREE, share=_share(request))
    terms = memory.terms
    size, ratio = values.get("hicache_size", 0), values.get("hicache_ratio")
    if size > 0:
        lever = Lever("--hicache-size", _CACHE, _GB * request.ranks)
        return replace(memory, terms={**terms, _CACHE: size * _GB * request.ranks}, lever=lever)
    lowered = ratio is None
    if ratio is None:
        ratio = _BUFFER_RATIO if values.get("hicache_host_memory_mode") == "buffer_only" else _RATIO
    if request.pool_bytes is None:
        return replace(memory, unknown=(_CACHE,), lowered=lowered)
    mirrored = request.pool_bytes * request.ranks
    lever = Lever("--hicache-ratio", _CACHE, mirrored, 0.1)
    return replace(memory, terms={**terms, _CACHE: int(ratio * mirrored)}, lowered=lowered, lever=lever)


def _without(request: HostRequest, *, backup: bool) -> KeptMemory:
    """A decode replica keeps the KV cache of requests that it interrupts, in a pool for at least one."""
    values = request.values
    by_default = "cpu_tensor" if values.get("disaggregation_decode_enable_radix_cache") else "host_pool"
    in_host_pool = values.get("disaggregation_decode_retraction_backup", by_default) == "host_pool"
    checkpoint = request.checkpoint
    if not backup or not in_host_pool or checkpoint.mla or checkpoint.recurrent or not request.pool_bytes:
        return KeptMemory()
    share = max(_BACKUP_RATIO, (request.longest or 0) / request.tokens if request.tokens else 0)
    terms = {_BACKUP: int(share * request.pool_bytes) * request.ranks}
    return KeptMemory(terms, keeps_free=_KEEPS_FREE, lowered=True, share=_share(request))


def _share(request: HostRequest) -> float:
    share: float = request.values.get("hicache_host_memory_fraction", _SHARE)
    return share


def _storage(request: HostRequest) -> KeptMemory:
    """The tier behind the host's memory."""
    environment, backend = request.environment, request.values.get("hicache_storage_backend")
    extra = json_object(request.values.get("hicache_storage_backend_extra_config"))
    if backend == "file":
        variable = "SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR"
        most = extra.get("max_size") or environment.get("SGLANG_HICACHE_FILE_BACKEND_MAX_SIZE")
        limit = f"{most} for each rank" if most else ""
        folder = KeptFolder(_FILES, "", limit)
        if path := environment.get(variable):
            folder = KeptFolder(path, variable, limit)
        elif path := extra.get("file_storage_path"):
            folder = KeptFolder(str(path), "file_storage_path", limit)
        return KeptMemory(folders=(folder,))
    if backend == "mooncake":
        usual = environment.get("MOONCAKE_GLOBAL_SEGMENT_SIZE", f"{_SEGMENT_GIB}gb")
        size = _segment(str(extra.get("global_segment_size") or usual))
        share = size * request.ranks // (request.layout.tensor * request.layout.pipeline)
        note = "Mooncake's master is not started by the plan: MOONCAKE_MASTER names one of yours."
        return KeptMemory({"Mooncake's segments": share} if share else {}, notes=(note,))
    if backend:
        note = f"The memory and the folders of --hicache-storage-backend {backend} are not counted."
        return KeptMemory(notes=(note,))
    return KeptMemory()


def _segment(text: str) -> int:
    """A size as _parse_global_segment_size reads it; 0 where it would refuse it."""
    number = text.strip().lower()
    unit = GIB if number.endswith("gb") else 1
    number = number.removesuffix("gb").strip()
    return int(number) * unit if number.isdecimal() else 0
