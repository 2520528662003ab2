"""GPUs by name (gpus.json): what a plan without SSH computes with. What a host reports replaces it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from headfirst.common.errors import InputError
from headfirst.decide.package_data import read_json

MIB = 1 << 20
# Ada (8.9) and Hopper (9.0) brought FP8 tensor cores; Ampere (8.x) has none.
FP8_CAPABILITY = (8, 9)


@dataclass(frozen=True)
class Gpu:
    """One GPU model. `memory_bytes` is the total that the driver reports (memory.total of nvidia-smi).

    `compute_capability` None: neither the catalogue nor the host nor the inventory has it. `architecture` is
    AMD's name of the instruction set (gfx942), "" on NVIDIA's GPUs. `host` is the architecture of the hosts
    that have it: aarch64 where GPU and CPU are one module (Grace).
    """

    name: str
    memory_bytes: int
    compute_capability: tuple[int, int] | None
    vendor: Literal["nvidia", "amd"] = "nvidia"
    architecture: str = ""
    host: str = "x86_64"

    @property
    def fp8(self) -> bool:
        """Whether the GPU computes in FP8."""
        return self.reaches(FP8_CAPABILITY)

    def reaches(self, capability: tuple[int, int]) -> bool:
        """Whether the compute capability is this or higher; False where it is not known."""
        return self.compute_capability is not None and self.compute_capability >= capability

    def lacks(self, capability: tuple[int, int]) -> bool:
        """Whether the compute capability is lower than this; False where it is not known."""
        return self.compute_capability is not None and self.compute_capability < capability

    def __str__(self) -> str:
        if self.compute_capability is None:
            return self.name
        return f"{self.name} (compute capability {capability_text(self.compute_capability)})"


@cache
def _catalogue() -> tuple[dict[str, Gpu], dict[str, str]]:
    """GPUs by name, and the name by each plain spelling."""
    return _read(read_json(__package__, "gpus.json")["gpus"])


def _read(entries: Iterable[Mapping[str, Any]]) -> tuple[dict[str, Gpu], dict[str, str]]:
    """The catalogue's two maps. ValueError for a spelling of two GPUs: it would give the wrong memory."""
    gpus: dict[str, Gpu] = {}
    names: dict[str, str] = {}
    for entry in entries:
        name = entry["name"]
        gpus[name] = Gpu(
            name,
            entry["memory_mib"] * MIB,
            capability(entry["compute_capability"]),
            entry.get("vendor", "nvidia"),
            entry.get("architecture", ""),
            entry.get("host", "x86_64"),
        )
        for spelling in (name, *entry["aliases"]):
            if (other := names.setdefault(_plain(spelling), name)) != name:
                raise ValueError(f"{spelling!r} is a spelling of {other} and of {name}")
    return gpus, names


def _plain(name: str) -> str:
    """The spelling without vendor, form factor and punctuation: 'NVIDIA A100-SXM4-80GB' -> 'a10080g'."""
    name = re.sub(r"nvidia|tesla|geforce|amd|instinct|sxm\d?|pcie|hbm\d?e?", "", name.lower())
    return re.sub(r"[^a-z0-9]", "", name.replace("gb", "g"))


def capability(text: str) -> tuple[int, int]:
    """`8.9` as numbers."""
    major, _, minor = text.partition(".")
    return int(major), int(minor)


def capability_text(capability: tuple[int, int]) -> str:
    """The numbers as `8.9`."""
    major, minor = capability
    return f"{major}.{minor}"


def known(name: str) -> bool:
    """Whether `find` has the name."""
    return _plain(name) in _catalogue()[1]


def find(name: str, *, where: str | None = None) -> Gpu:
    """The GPU called `name`: a name or alias of the catalogue, or the driver's product name.

    Raises InputError at `where`, with the sizes of a name that lacks one.
    """
    gpus, spellings = _catalogue()
    plain = _plain(name)
    if plain in spellings:
        return gpus[spellings[plain]]
    # "A100" alone is not enough: there is one with 40 GB and one with 80 GB.
    sized = re.compile(re.escape(plain) + r"\d+g")
    sizes = [gpu for spelling, gpu in spellings.items() if plain and sized.fullmatch(spelling)]
    # A name that merely resembles another one is no hint: H100 NVL and H100, GB200 and B200 differ in memory.
    hint = (
        f"Did you mean {' or '.join(dict.fromkeys(sizes))}?"
        if sizes
        else f"Known: {', '.join(gpus)}. Of any other GPU write the memory, for example gpu_memory=48g, and "
        "gpu_capability=; or probe the hosts with `deploy plan --probe`."
    )
    raise InputError(f"Unknown GPU {name!r}.", where=where, hint=hint)


def reported(
    name: str, memory_bytes: int | None, capability: tuple[int, int] | None, *, where: str | None = None
) -> Gpu:
    """The GPU called `name` with the memory and the compute capability that its host or the inventory gives.

    What is not given is the catalogue's. A name that is not in the catalogue needs its memory; InputError.
    """
    if not known(name) and memory_bytes:
        return Gpu(re.sub(r"^NVIDIA ", "", name), memory_bytes, capability)
    listed = find(name, where=where)
    return replace(
        listed,
        memory_bytes=memory_bytes or listed.memory_bytes,
        compute_capability=capability or listed.compute_capability,
    )
