"""Host memory and folders of the ranks: KV caches beyond the GPU's, weights that stay outside of it. Pure.

The engine's folder has the formulas (engines/host_memory.py). Here they are compared with what hosts have.
What is estimated beside them (Python, CUDA's context, NCCL's buffers) refuses nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from headfirst.common.errors import InputError
from headfirst.decide import engines
from headfirst.decide.cluster.types import Cluster, Host, Service
from headfirst.decide.cluster.values import memory_bytes
from headfirst.decide.engines.base import Engine, Values
from headfirst.decide.engines.host_memory import NOTHING, HostRequest, KeptFolder, KeptMemory
from headfirst.decide.engines.layout import Layout
from headfirst.decide.model.checkpoint import Checkpoint
from headfirst.decide.plan import types
from headfirst.decide.plan.sizing.fit import memory_text
from headfirst.decide.plan.weights.placement import RANK_BYTES

# Of a GPU server whose memory is not known: what most have, and what none has more of.
_USUAL, _MOST = 2 << 40, 8 << 40
_ARGUMENTS = ("engine_args", "prefill_engine_args", "decode_engine_args", "engine_env")


def kept(
    service: Service,
    engine: Engine,
    checkpoint: Checkpoint,
    layout: Layout,
    nodes: int,
    values: Values,
    fit: types.Fit,
) -> KeptMemory:
    """What the ranks of a host of one replica keep there. InputError for what the engine refuses."""
    settings = service.settings
    if settings.engine_device != "cuda":
        return NOTHING
    pool = fit.kv_pool_bytes
    if pool is not None and fit.kv_tokens and not fit.state_bytes_per_request:
        pool = min(pool, fit.kv_tokens * fit.kv_bytes_per_token)  # the user's limit in tokens
    memory = engine.host_memory(
        HostRequest(
            checkpoint=checkpoint,
            layout=layout,
            ranks=max(1, layout.world // nodes),
            values=values,
            environment=settings.engine_env,
            role=service.roles[0],
            pool_bytes=pool,
            tokens=fit.kv_tokens,
            longest=fit.longest_request,
            offloaded_bytes=fit.offloaded_bytes_per_rank,
        )
    )
    if memory.problems:
        raise InputError(
            f"{engine.title} {engine.version} does not start: {'; '.join(memory.problems)}.",
            where=service.given.get("engine_args"),
            hint="Change these arguments.",
        )
    return memory


def plan(service: Service, engine: Engine, memory: KeptMemory, *, ranks: int) -> types.HostMemory | None:
    """The same in the plan, for `ranks` on a host; InputError for a folder that is not mounted."""
    if not (memory.terms or memory.unknown or memory.folders):
        return None
    memories = [host.memory_bytes for host in service.hosts if host.memory_bytes]
    if memory.lowered and memories:
        most = int(memory.share * (min(memories) - memory.keeps_free))
        memory = replace(memory, terms={what: min(size, max(0, most)) for what, size in memory.terms.items()})
    return types.HostMemory(
        bytes=sum(memory.terms.values()),
        terms=dict(memory.terms),
        unknown=list(memory.unknown),
        shared_bytes=memory.shared,
        keeps_free_bytes=memory.keeps_free,
        lowered=memory.lowered,
        folders=[_folder(service, folder) for folder in memory.folders],
        reason=_reason(service, engine, memory, ranks),
        lever=memory.lever,
    )


def _folder(service: Service, folder: KeptFolder) -> types.CacheFolder:
    settings = service.settings
    mounts = [[*volume.split(":"), "rw"][:3] for volume in settings.engine_volumes]
    mounts += [[settings.own_cache_dir, settings.own_cache_dir, "rw"]] if settings.own_cache_dir else []
    mounts += [["/dev/shm", "/dev/shm", "rw"]]  # noqa: S108 - the host's, as its IPC is
    path = folder.path.rstrip("/") or "/"
    for source, target, mode in mounts:
        if f"{path}/".startswith(f"{target.rstrip('/')}/"):
            if "ro" in mode.split(","):
                raise InputError(
                    f"{folder.setting}={folder.path} is mounted read-only",
                    where=service.given.get("engine_volumes"),
                    hint=f"Write engine_volumes={source}:{target} without `:ro`.",
                )
            below = path[len(target.rstrip("/")) :]
            return types.CacheFolder(path=path, host_path=f"{source.rstrip('/')}{below}", limit=folder.limit)
    if folder.setting:
        raise InputError(
            f"{folder.setting}={folder.path} is a folder inside the containers: the KV cache would fill "
            "the disk of the container runtime, and be lost with the containers",
            where=service.given.get("engine_args"),
            hint=f"Mount a folder of the hosts: engine_volumes={path}:{path}",
        )
    return types.CacheFolder(path=path, host_path=None, limit=folder.limit)


def _reason(service: Service, engine: Engine, memory: KeptMemory, ranks: int) -> str:
    """A sentence each: what is kept, what is beside it, what the hosts have, and the folders."""
    parts = [f"{memory_text(size)} of {what}" for what, size in memory.terms.items()]
    parts += [f"{what}, whose size is not known without the GPU" for what in memory.unknown]
    sentences = []
    if parts:
        most = "up to " if memory.lowered else ""
        sentences.append(
            f"each host of a replica keeps {most}{' and '.join(parts)} for {ranks} "
            f"rank{'s' if ranks > 1 else ''}"
            + (f" ({memory.lever.name})" if memory.lever else "")
            + f", beside about {memory_text(ranks * RANK_BYTES)} of their processes (estimated)."
        )
    if memory.keeps_free and parts:
        less = "takes less if the host has less" if memory.lowered else "ends at start otherwise"
        sentences.append(
            f"{engine.title} leaves {memory_text(memory.keeps_free)} of the host free and {less}."
        )
    if memory.shared:
        sentences.append(f"It is shared memory: /dev/shm needs {memory_text(memory.shared)} of room.")
    memories = [host.memory_bytes for host in service.hosts if host.memory_bytes]
    if parts:
        sentences.append(
            f"The hosts have {memory_text(min(memories))} or more."
            if memories
            else "The hosts' memory is not known; --probe reads it."
        )
    need = sum(memory.terms.values()) + memory.keeps_free + ranks * RANK_BYTES
    if not memories and not memory.lowered and need > _USUAL:
        sentences.append(f"Most servers with GPUs have {memory_text(_USUAL)} or less.")
    if memories and not memory.lowered and need > min(memories):
        sentences.append("By this estimate a host runs out of memory.")
    sentences += [_about(folder) for folder in memory.folders]
    text = " ".join(sentences)
    return text[:1].upper() + text[1:]


def _about(folder: KeptFolder) -> str:
    grows = f"up to {folder.limit}" if folder.limit else "until its disk is full"
    inside = "" if folder.setting else ", inside the container, and is lost with it"
    return f"The KV cache in {folder.path} grows {grows}{inside}."


def of_hosts(pools: Iterable[tuple[Service, types.HostMemory | None]]) -> int:
    """Bytes that the ranks of a service keep on the host that has most of them."""
    sums: Counter[str] = Counter()
    for service, memory in pools:
        for replica in service.replicas if memory else ():
            for host in replica.hosts:
                sums[host.name] += memory.bytes if memory else 0
    return max(sums.values(), default=0)


def on_host(
    services: Sequence[types.PlannedService], host: str
) -> list[tuple[types.PlannedService, types.HostMemory]]:
    """Of each rank on the host, in the order of services."""
    return [
        (service, memory)
        for service in services
        for replica, node in service.ranks
        if node.host == host and (memory := service.sized(replica).host_memory)
    ]


def required_bytes(ranks: Sequence[types.HostMemory]) -> int:
    """What a host must have for these."""
    least = max((memory.keeps_free_bytes for memory in ranks), default=0)
    return sum(memory.required_bytes for memory in ranks) + least


def refuse(cluster: Cluster, services: Sequence[types.PlannedService]) -> None:
    """Raise for a host that does not have the memory which its ranks keep, or that no host has."""
    for host in cluster.ranks:
        ranks = on_host(services, host.name)
        need = required_bytes([memory for _, memory in ranks])
        if ranks and need > (host.memory_bytes or _MOST):
            raise _too_much(cluster, host, ranks, need)


def _too_much(
    cluster: Cluster, host: Host, ranks: list[tuple[types.PlannedService, types.HostMemory]], need: int
) -> InputError:
    """The largest of these is to be lowered, to what the others and the processes leave."""
    service, largest = max(ranks, key=lambda rank: rank[1].required_bytes)
    configured = cluster.service(service.name)
    lever = largest.lever
    same = sum(kept.lever == lever and of is service for of, kept in ranks)
    gpus = sum(_ranks(of) for of, _ in ranks)
    room = (host.memory_bytes or _MOST) - need + same * largest.required_bytes
    room -= gpus * RANK_BYTES + len(ranks) * memory_bytes(configured.settings.shm_size)
    rest = room // same - largest.bytes
    value = lever.largest(rest + largest.terms.get(lever.term, 0)) if lever else ""
    terms: Counter[str] = Counter()
    for _, host_memory in ranks:
        terms.update({} if host_memory.lowered else host_memory.terms)
    title = engines.get(service.engine, service.engine_version).title
    free = largest.keeps_free_bytes
    memory, known = memory_text(host.memory_bytes or _MOST), bool(host.memory_bytes)
    return InputError(
        f"{host.name} has {memory} of memory{'' if known else ' at most, like every known server'}"
        + f", and its ranks need {memory_text(need)}: "
        + " and ".join(f"{memory_text(size)} of {what}" for what, size in terms.items())
        + (f", and {title} leaves {memory_text(free)} free" if free else ""),
        where=next((configured.given[name] for name in _ARGUMENTS if configured.given.get(name)), None),
        hint=f"Set {lever.name} to {value} or less{'' if known else '; --probe reads the memory'}."
        if lever and value
        else f"Leave out {lever.name if lever else 'what keeps it there'}, or take hosts with more memory.",
    )


def _ranks(service: types.PlannedService) -> int:
    """Ranks of a replica on one of its hosts."""
    return service.world_size // len(service.replicas[0].nodes)
