"""GPUs by name: memory as the driver reports it, and whether they compute in FP8 (gpus.json)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from headfirst.errors import InputError

MIB = 1 << 20
# Ada (8.9) and Hopper (9.0) brought FP8 tensor cores; Ampere (8.x) has none.
FP8_CAPABILITY = (8, 9)


@dataclass(frozen=True)
class Gpu:
    """One GPU model. `memory_bytes` is what `nvidia-smi --query-gpu=memory.total` reports."""

    name: str
    memory_bytes: int
    compute_capability: tuple[int, int]

    @property
    def fp8(self) -> bool:
        """Whether the GPU computes in FP8."""
        return self.compute_capability >= FP8_CAPABILITY


@cache
def _catalogue() -> tuple[dict[str, Gpu], dict[str, str]]:
    entries = json.loads(files("headfirst.plan").joinpath("gpus.json").read_text(encoding="utf-8"))["gpus"]
    gpus, names = {}, {}
    for entry in entries:
        major, _, minor = entry["compute_capability"].partition(".")
        name = entry["name"]
        gpus[name] = Gpu(name, entry["memory_mib"] * MIB, (int(major), int(minor)))
        for spelling in (name, *entry["aliases"]):
            names[_plain(spelling)] = name
    return gpus, names


def _plain(name: str) -> str:
    """The spelling without vendor, form factor and punctuation: 'NVIDIA A100-SXM4-80GB' -> 'a10080g'."""
    name = re.sub(r"nvidia|tesla|geforce|sxm\d?|pcie|hbm\d?e?", "", name.lower())
    return re.sub(r"[^a-z0-9]", "", name.replace("gb", "g"))


def names() -> list[str]:
    """The names that `find` knows, aliases left out."""
    return list(_catalogue()[0])


def known(name: str) -> bool:
    """Whether `find` knows the name."""
    return _plain(name) in _catalogue()[1]


def find(name: str, *, where: str | None = None) -> Gpu:
    """The GPU called `name`: a name or alias of the catalogue, or the driver's product name.

    Raises InputError at `where`, with the sizes of a name that lacks one.
    """
    gpus, spellings = _catalogue()
    plain = _plain(name)
    if plain in spellings:
        return gpus[spellings[plain]]
    # "A100" alone says too little: there is one with 40 GB and one with 80 GB.
    sized = re.compile(re.escape(plain) + r"\d+g")
    sizes = [gpu for spelling, gpu in spellings.items() if plain and sized.fullmatch(spelling)]
    # A name that merely resembles another one is no hint: H100 NVL and H100, GB200 and B200 differ in memory.
    hint = (
        f"Did you mean {' or '.join(dict.fromkeys(sizes))}?"
        if sizes
        else f"Known: {', '.join(gpus)}. Of any other GPU the host itself reports the memory: "
        "leave gpu= out and use `deploy plan --probe` or `deploy up`."
    )
    raise InputError(f"Unknown GPU {name!r}.", where=where, hint=hint)


def reported(
    name: str, memory_bytes: int | None, capability: tuple[int, int] | None, *, where: str | None = None
) -> Gpu:
    """The GPU called `name` with the memory and the compute capability that its host reports; where it
    reports one of them only or none, the rest is the catalogue's, and the name must be in it."""
    listed = find(name, where=where) if known(name) or not (memory_bytes and capability) else None
    if listed is None:
        listed = Gpu(re.sub(r"^NVIDIA ", "", name), 0, (0, 0))
    return replace(
        listed,
        memory_bytes=memory_bytes or listed.memory_bytes,
        compute_capability=capability or listed.compute_capability,
    )
