"""What the ranks of a replica keep in the memory and on the disk of a host, beside their processes.

KV caches beyond the GPU's and weights that stay outside of it: each engine's folder has its formulas. Bytes
are plain integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headfirst.common.untrusted import finite_json
from headfirst.decide.engines.arguments import Values
from headfirst.decide.engines.layout import Layout
from headfirst.decide.model.checkpoint import Checkpoint

GIB = 1 << 30


@dataclass(frozen=True)
class HostRequest:
    """A replica and its arguments. `ranks` are those of one host.

    `pool_bytes`, `tokens` and `longest` are of the KV cache on one rank's GPU, None where the GPU is not
    known; `offloaded_bytes` are the weights of one rank that stay in host memory. `role`: prefill or decode.
    """

    checkpoint: Checkpoint
    layout: Layout
    ranks: int
    values: Values
    environment: Mapping[str, str]
    role: str | None
    pool_bytes: int | None
    tokens: int | None
    longest: int | None
    offloaded_bytes: int = 0


@dataclass(frozen=True)
class KeptFolder:
    """A folder in the container for a KV cache. `setting` names it; "" where the engine chose it.

    `limit`: how large it becomes; "" where it grows until the disk is full.
    """

    path: str
    setting: str = ""
    limit: str = ""


@dataclass(frozen=True)
class Lever:
    """The argument or variable that sets the size of `term`: each unit of it takes `unit_bytes` on a host.

    Its values are multiples of `step`.
    """

    name: str
    term: str
    unit_bytes: float = field(compare=False)
    step: float = 1

    def largest(self, room: int) -> str:
        """The largest value that takes `room` bytes or less, as text; "" where there is none."""
        steps = int(room / self.unit_bytes / self.step) if self.unit_bytes else 0
        return f"{steps * self.step:.6g}" if steps > 0 else ""


@dataclass(frozen=True)
class KeptMemory:
    """Bytes on a host, of all its ranks of a replica, by purpose.

    `unknown`: purposes whose bytes depend on a GPU that is not known. `shared` of the bytes are files in
    /dev/shm, which must have this much room. `keeps_free`: what the engine requires to be left of the host.
    `lowered`: it takes less where the host has less, at most `share` of what is free beside these.
    `problems`: why the engine ends at its start, a clause each.
    """

    terms: Mapping[str, int] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    shared: int = 0
    keeps_free: int = 0
    lowered: bool = False
    share: float = 1.0
    lever: Lever | None = None
    folders: tuple[KeptFolder, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


NOTHING = KeptMemory()
_WEIGHTS = "weights"


def with_weights(request: HostRequest, memory: KeptMemory) -> KeptMemory:
    """The same beside the weights that stay in host memory, up to --cpu-offload-gb of each rank."""
    size = request.offloaded_bytes * request.ranks
    if not size:
        return memory
    lever = memory.lever
    if lever is None and request.values.get("cpu_offload_gb"):
        lever = Lever("--cpu-offload-gb", _WEIGHTS, GIB * request.ranks)
    return replace(memory, terms={_WEIGHTS: size, **memory.terms}, lever=lever)


def json_object(text: object) -> Mapping[str, Any]:
    """An argument that holds a JSON object; empty where it is none."""
    try:
        value = finite_json(text) if isinstance(text, str) else text
    except ValueError:
        return {}
    return value if isinstance(value, Mapping) else {}


def connectors(config: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Names and settings of a --kv-transfer-config, those inside a MultiConnector too."""
    fields = json_object(config)
    name, extra = str(fields.get("kv_connector") or ""), json_object(fields.get("kv_connector_extra_config"))
    if name == "MultiConnector":
        listed = extra.get("connectors")
        for each in listed if isinstance(listed, list) else []:
            yield from connectors(each)
    elif name:
        yield name, extra


LMCACHE_SERVER = (
    "LMCache's own server is not started by the plan: one of yours must answer on each host (by default at "
    "port 5555). Its memory is not counted, and whether the image has LMCache is not checked."
)
# LMCache, lmcache/v1/config.py; sizes are GiB of each rank (cache_engine.py, storage_backend).
_LMCACHE_GIB = 5.0
_LMCACHE = "KV cache (LMCache)"
_FALSE = ("false", "0", "no", "off")


def lmcache(request: HostRequest) -> KeptMemory:
    """LMCache inside the ranks, as the variables of their environment set it."""
    environment = request.environment
    if path := environment.get("LMCACHE_CONFIG_FILE"):
        return KeptMemory(
            notes=(
                f"LMCACHE_CONFIG_FILE={path} is not read: the memory and the folders that it sets are not "
                "in the plan.",
            )
        )
    names = ("LMCACHE_MAX_LOCAL_CPU_SIZE", "LMCACHE_MAX_LOCAL_DISK_SIZE")
    try:
        size, disk = (
            float(environment.get(name, usual)) for name, usual in zip(names, (_LMCACHE_GIB, 0), strict=True)
        )
    except ValueError:
        size = disk = -1.0
    if not (0 <= size < GIB and 0 <= disk < GIB):
        return KeptMemory(problems=("LMCACHE_MAX_LOCAL_CPU_SIZE and LMCACHE_MAX_LOCAL_DISK_SIZE are GiB",))
    folder = environment.get("LMCACHE_LOCAL_DISK", "").strip().strip("'\"").removeprefix("file://")
    unset = folder.lower() in ("", "none", "true", *_FALSE)
    return KeptMemory(
        {_LMCACHE: int(size * GIB) * request.ranks},
        lever=Lever("LMCACHE_MAX_LOCAL_CPU_SIZE", _LMCACHE, GIB * request.ranks),
        folders=() if unset else (KeptFolder(folder, "LMCACHE_LOCAL_DISK", f"{disk * request.ranks:g} GiB"),),
        notes=("Whether the image has LMCache is not checked.",),
    )
